"""The committed stubs are what the .proto files say."""

import filecmp
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_committed_stubs_equal_freshly_made_ones(tmp_path):
    subprocess.run([ROOT / "tools" / "protos", tmp_path], check=True, capture_output=True)

    fresh = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    committed = ROOT / "proto" / "gen"
    kept = sorted(
        p.relative_to(committed) for p in committed.rglob("*.py*") if "__pycache__" not in p.parts
    )

    assert set(kept) <= set(fresh), "files in proto/gen that no .proto makes: run ./tools/protos"
    different = [str(p) for p in fresh if not _is_same(tmp_path / p, committed / p)]
    assert not different, f"run ./tools/protos: {different}"


def _is_same(fresh: Path, committed: Path) -> bool:
    return committed.exists() and filecmp.cmp(fresh, committed, shallow=False)
