"""Documents packed into sequences, beside the same documents one by one; `make torch-test` runs these tests."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from edl.errors import ConfigError, PermanentError
from edl.worker_torch.packing import IGNORED, Packing, document_mask
from tests.worker.torch_script import RECORDS, Script, order_of, trained

LENGTH, WORDS = 12, 17
DRAW = torch.Generator().manual_seed(3)
SIZES = torch.randint(2, 31, (RECORDS,), generator=DRAW).tolist()
DOCUMENTS = [torch.randint(0, WORDS, (size,), generator=DRAW) for size in SIZES]


class Language(nn.Module):
    """One layer of attention."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(WORDS, 8), nn.Embedding(LENGTH, 8)
        self.query, self.head = nn.Linear(8, 24), nn.Linear(8, WORDS)

    def forward(self, tokens: Any, places: Any, mask: Any) -> Any:
        query, key, value = self.query(self.words(tokens) + self.places(places))[:, None].chunk(3, -1)
        return self.head(nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)[:, 0])


def loss_of(model: Any, batch: Any) -> Any:
    logits = model(batch["input_ids"], batch["position_ids"], document_mask(batch["document_ids"]))
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())


class Packed(Script):
    """A script whose batches are packed documents."""

    def run(self, body: Any = None) -> Script:
        torch.set_num_threads(1)
        with self.job:
            for batch in self.elastic.batches():
                (body or (lambda model, its: loss_of(model, its).backward()))(self.model, batch)
        return self


@given(st.lists(st.lists(st.integers(0, 99), max_size=40), max_size=12), st.integers(2, 9))
def test_each_token_but_the_first_is_a_label_once_after_those_before_it(documents: Any, length: int) -> None:
    if not any(len(document) > 1 for document in documents):
        with pytest.raises(PermanentError, match=f"none of {len(documents)} documents of a batch has two tokens"):
            Packing(length)(documents)
        return
    batch = Packing(length, pad=7)(documents)
    pairs: Counter[tuple[int, int]] = Counter()
    for tokens, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        pairs.update((tokens[at - 1], label) for at, label in enumerate(labels) if label != IGNORED)
    assert pairs == Counter(pair for document in documents for pair in itertools.pairwise(document))
    is_empty = batch["document_ids"] == 0
    assert bool((batch["input_ids"][is_empty] == 7).all())
    assert bool((batch["labels"][is_empty] == IGNORED).all())
    assert is_empty.sum(1).max() < length, "no sequence is empty"


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_packed_documents_train_as_the_documents_one_by_one_with_any_number_of_trainers(
    tmp_path: Path, count: int
) -> None:
    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    alone = Packing(LENGTH)
    for numbers in await order_of(tmp_path / "order"):
        optimizer.zero_grad()
        losses, labels = [], 0
        for number in numbers:
            for part in alone._parts(DOCUMENTS[number]):
                if len(part) > 1:
                    losses.append(loss_of(model, alone([part])) * (len(part) - 1))
                    labels += len(part) - 1
        (torch.stack(losses).sum() / labels).backward()
        optimizer.step()
    make = functools.partial(
        Packed,
        first=count,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.5),
        read=DOCUMENTS.__getitem__,
        collate=alone,
        micro_batch=5,
    )
    found = await trained(tmp_path / "j", count, make=lambda served, name: make(served, name, model=Language()))
    expected = torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])
    for script in found:
        assert torch.equal(script.weights, found[0].weights)
        assert torch.allclose(script.weights, expected, atol=1e-5)


def test_sequences_without_a_label_are_refused() -> None:
    with pytest.raises(ConfigError, match="sequences of 1 tokens have no label"):
        Packing(1)
