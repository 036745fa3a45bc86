"""Packs documents of different lengths into sequences of one length, as the `collate=` of a language model.

    packing = Packing(1024, pad=tokenizer.eos_token_id)
    for batch in Elastic(job, model, optimizer, read=tokens_of, collate=packing).batches():
        logits = model(batch["input_ids"], batch["position_ids"], mask=document_mask(batch["document_ids"]))
        labels = batch["labels"][:, 1:]
        nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels.flatten()).backward()

A document is a record: it is in the step of which the master accounts for it, as a whole. Each token of it but the
first is a label exactly once. With `document_mask` no document sees another one, so the gradient of a step is that of
the documents one by one, whatever is packed with what, and with any number of trainers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edl.errors import ConfigError, PermanentError

try:
    import torch
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

IGNORED = -100
"""The label that counts in no loss of torch and Hugging Face."""


class Packing:
    """Makes a batch of documents.

    Args:
        length: tokens of a sequence, at least 2. A longer document becomes several parts, each of which begins with
            the last token of the one before, whose label is that of the earlier part.
        pad: the token that fills the end of a sequence; it is no label.

    Raises:
        ConfigError: the length is below 2.
    """

    def __init__(self, length: int, pad: int = 0) -> None:
        if length < 2:
            raise ConfigError(f"Packing: sequences of {length} tokens have no label; give a length of at least 2")
        self.length, self.pad = length, pad

    def __call__(self, documents: Sequence[Any]) -> dict[str, Any]:
        """The sequences of some documents.

        Args:
            documents: each a list or a tensor of token numbers.

        Returns:
            Tensors of int64 of shape [sequences, length]: `input_ids`; `labels`, the same without the first token of
            each part (for models that shift labels themselves, or see above); `position_ids`, from 0 in each part;
            `document_ids`, from 1 in each sequence, 0 where it is filled up.

        Raises:
            PermanentError: no document has two tokens, so there is nothing to predict.
        """
        parts = [part for document in documents for part in self._parts(torch.as_tensor(document))]
        if not any(len(part) > 1 for part in parts):
            raise PermanentError(
                f"Packing: none of {len(documents)} documents of a batch has two tokens, so there is nothing to"
                " predict; leave such documents out of the data, or let read= append a token such as the end of text"
            )
        rows = self._rows(parts)
        found = {
            name: torch.full((len(rows), self.length), fill)
            for name, fill in (
                ("input_ids", self.pad),
                ("labels", IGNORED),
                ("position_ids", 0),
                ("document_ids", 0),
            )
        }
        for row, its in enumerate(rows):
            at = 0
            for number, part in enumerate(its, 1):
                place = row, slice(at, at + len(part))
                found["input_ids"][place] = part
                found["labels"][row, at + 1 : at + len(part)] = part[1:]
                found["position_ids"][place] = torch.arange(len(part))
                found["document_ids"][place] = number
                at += len(part)
        return found

    def _parts(self, tokens: Any) -> list[Any]:
        if len(tokens) <= self.length:
            return [tokens] if len(tokens) else []
        return [tokens[at : at + self.length] for at in range(0, len(tokens) - 1, self.length - 1)]

    def _rows(self, parts: list[Any]) -> list[list[Any]]:
        """The longest parts first, each into the first sequence that it fits into."""
        rows: list[list[Any]] = []
        room: list[int] = []
        for part in sorted(parts, key=len, reverse=True):  # equally long ones stay in their order
            place = next((row for row, left in enumerate(room) if left >= len(part)), len(rows))
            if place == len(rows):
                rows.append([])
                room.append(self.length)
            rows[place].append(part)
            room[place] -= len(part)
        return rows


def document_mask(document_ids: Any) -> Any:
    """Which tokens each token sees: itself and the earlier ones of its document.

    Args:
        document_ids: of a batch, of shape [sequences, length].

    Returns:
        True where it sees, of shape [sequences, 1, length, length], as `scaled_dot_product_attention` takes it.
    """
    same = document_ids[:, :, None] == document_ids[:, None, :]
    length = document_ids.shape[1]
    return (same & torch.ones(length, length, dtype=torch.bool, device=same.device).tril())[:, None]
