"""What a trainer with PyTorch imports: batches of its share of the data, and training in step with other trainers.

    from edl.worker import connect
    from edl.worker_torch import Elastic
    with connect() as job:
        for x, y in Elastic(job, model, optimizer, read=dataset.__getitem__).batches():
            loss_function(model(x), y).backward()

`Accelerator` takes the place of Hugging Face Accelerate's in a script that has one. `edl.worker_torch.transformers`
has a `Trainer` for Hugging Face, `edl.worker_torch.lightning` a strategy for PyTorch Lightning.
`loader` is for trainers that share no gradients, such as those of parameter servers. Start reading in `elastic.py`.
"""

from edl.worker_torch.accelerator import Accelerator
from edl.worker_torch.collating import Collate
from edl.worker_torch.elastic import Elastic
from edl.worker_torch.loader import Batches, loader

__all__ = ["Accelerator", "Batches", "Collate", "Elastic", "loader"]
