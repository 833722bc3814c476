"""Write scikit-learn's digits as Parquet files with small row groups: a data set for a cache."""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

FILES, GROUP = 4, 64


def main(folder: Path) -> None:
    """Write the files."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("scikit-learn is not installed: its digits are the training data")
    table = np.loadtxt(
        Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",", dtype=np.float32
    )
    pixels = pa.FixedSizeListArray.from_arrays(pa.array((table[:, :-1] / 16).ravel()), 64)
    columns = {"id": np.arange(len(table)), "pixels": pixels, "digit": table[:, -1].astype(int)}
    rows = pa.table(columns)
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-rows.num_rows // FILES)
    for number in range(FILES):
        part = rows.slice(number * size, size)
        parquet.write_table(part, folder / f"part-{number}.parquet", row_group_size=GROUP)
    print(f"{rows.num_rows} rows in {FILES} files", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
