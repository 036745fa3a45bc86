"""The network: embeddings of the categories and three layers, with the table on pservers or in the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle
from numpy.typing import NDArray

from .clicks import NUMBERS, RECORDS, SLOTS, VALUES, Clicks

TABLE, WIDTH, LAYERS = "embeddings", 8, (64, 32)
MODEL = "ctr"
"""The name of the files of the inference model."""
Vector = NDArray[np.float32]


class Network(NamedTuple):
    """The variables of a program.

    Attributes:
        embedded: the embeddings of the categories.
        click: the probability of a click.
        cost: to minimise.
    """

    embedded: Any
    click: Any
    cost: Any


def build(*, on_pservers: bool) -> Network:
    """Add the network to the default program.

    Args:
        on_pservers: the embeddings are in a table of the pservers; otherwise they are a parameter.
    """
    numbers = paddle.static.data("numbers", [None, NUMBERS], "float32")
    categories = paddle.static.data("categories", [None, 1], "int64")  # SLOTS rows for each record
    clicked = paddle.static.data("clicked", [None, 1], "float32")
    size = [SLOTS * VALUES, WIDTH]
    weights = paddle.ParamAttr(name=TABLE, initializer=paddle.nn.initializer.Uniform(-0.05, 0.05))
    embedding = paddle.static.nn.sparse_embedding if on_pservers else paddle.static.nn.embedding
    embedded = paddle.reshape(embedding(categories, size, param_attr=weights), [-1, SLOTS * WIDTH])
    hidden = paddle.concat([embedded, numbers], axis=1)
    for number, units in enumerate(LAYERS):
        hidden = paddle.static.nn.fc(
            hidden, units, activation="relu", weight_attr=f"weights-{number}", bias_attr=f"bias-{number}"
        )
    click = paddle.static.nn.fc(hidden, 1, activation="sigmoid", weight_attr="weights-last", bias_attr="bias-last")
    cost = paddle.mean(paddle.nn.functional.binary_cross_entropy(click, clicked))
    return Network(embedded, click, cost)


def save_for_inference(folder: Path, table: Vector, dense: dict[str, Vector]) -> Path:
    """Save a model that needs no pservers; returns the path without its suffix.

    Args:
        folder: for the files.
        table: (SLOTS * VALUES, WIDTH) the embeddings.
        dense: the other weights, by name.
    """
    program, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
    with paddle.static.program_guard(program, startup), paddle.static.scope_guard(scope):
        network = build(on_pservers=False)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        for name, values in {**dense, TABLE: table}.items():
            scope.find_var(name).get_tensor().set(values, paddle.CPUPlace())
        inputs = [program.global_block().var(name) for name in ("numbers", "categories")]
        folder.mkdir(parents=True, exist_ok=True)
        paddle.static.save_inference_model(str(folder / MODEL), inputs, [network.click], executor, program=program)
    return folder / MODEL


def predict(path: Path, clicks: Clicks) -> NDArray[np.float64]:
    """The probabilities that a saved model gives to the held-out records."""
    with paddle.static.scope_guard(paddle.static.Scope()):
        executor = paddle.static.Executor(paddle.CPUPlace())
        program, names, targets = paddle.static.load_inference_model(str(path), executor)
        given = clicks.numbers[RECORDS:], clicks.categories[RECORDS:].reshape(-1, 1)
        (score,) = executor.run(program, feed=dict(zip(names, given, strict=True)), fetch_list=targets)
    return np.ravel(score).astype(np.float64)


def auc(clicked: NDArray[np.int64], score: NDArray[Any]) -> float:
    """The share of pairs in which the click has the higher score, 0.5 by chance and 1.0 at best."""
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(1, len(score) + 1)
    clicks = int(clicked.sum())
    return float((rank[clicked == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(clicked) - clicks)))
