"""Which normalization for your own molecules: a CSV of SMILES and labels, to a verdict and a page to look at.

Run it with ``python examples/own_smiles_table.py``. For a table of yours, name its columns:
``--table mine.csv --smiles structure --target activity``. It needs ``pip install '.[chem,study,report]'``.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import graphnorm
from graphnorm.report import build_page, read_folder


def write_example(path: Path) -> None:
    """Alcohols and ethers of growing length: the same atoms, joined in another order."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "kind"])
        for left in range(1, 9):
            for right in range(1, 6):
                writer.writerow(["C" * left + "C(O)" + "C" * right, "alcohol"])
                writer.writerow(["C" * left + "COC" + "C" * right, "ether"])


def main() -> None:
    """Compare three normalizations on the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--smiles", default="smiles", help="column of the SMILES")
    parser.add_argument("--target", default="kind", help="column of what is to be predicted")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("smiles-example"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.table is None:
        options.table = options.out / "molecules.csv"
        write_example(options.table)
    result = graphnorm.compare(
        options.table,
        smiles=options.smiles,
        target=options.target,
        norms=["none", "batch", "graph"],
        protocol="fair",
        folds=3,
        epochs=options.epochs,
        hidden=16,
        out=options.out,
        overwrite=True,
        workers=1,
    )
    print(result)
    page = options.out / "report.html"
    page.write_text(build_page([read_folder(options.out)]), encoding="utf-8")
    print(f"\nwritten to {options.out}; open {page}")


if __name__ == "__main__":
    main()
