"""Loads the trained model from its folder and tests it; it needs neither the job nor its pservers.

python -m example.ctr.predict FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import paddle

from .clicks import HELD_OUT, RECORDS, generate
from .network import MODEL, auc, predict


def main() -> None:
    """Print the AUC of the model, and that of the true probabilities."""
    paddle.enable_static()
    clicks = generate()
    score = predict(Path(sys.argv[1]) / MODEL, clicks)
    clicked = clicks.clicked[RECORDS:]
    best = auc(clicked, clicks.chance[RECORDS:])
    print(f"AUC {auc(clicked, score):.4f} on {HELD_OUT} held-out records; a perfect model has {best:.4f}")


if __name__ == "__main__":
    main()
