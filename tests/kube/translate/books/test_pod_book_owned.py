"""How many pods of jobs a namespace has, which each quota of `count/pods` asks."""

from __future__ import annotations

from edl.kube.translate.books.pod_book import PodBook
from edl.model.names import JobKey
from tests.worlds.fakes import Compared
from tests.worlds.raw_objects import decoded, job, owned_by, trainer

NOW_S = 1000.0


def book_of(namespaces: int) -> PodBook:
    """A job with two trainers in each of so many namespaces."""
    book = PodBook()
    for number in range(namespaces):
        namespace, uid = f"ads-{number}", f"uid-{number}"
        of = decoded(job(uid=uid, metadata={"namespace": namespace}))
        book.note_jobs([(JobKey(namespace, "ctr"), of.metadata)])
        for index in range(2):
            made = decoded(trainer(index, owner=owned_by(uid), namespace=namespace))
            book.note([((namespace, made.metadata.name), made)])
    book.translate(NOW_S)
    book.sort()
    return book


def test_the_pods_of_jobs_of_other_namespaces_are_not_looked_at() -> None:
    book = book_of(200)
    Compared.times = 0
    assert book.count_owned(Compared("ads-7"), NOW_S) == 2
    assert 0 < Compared.times < 10


def test_exempt_jobs_do_not_count_and_pods_that_are_gone_do_for_a_while() -> None:
    book = book_of(2)
    assert book.count_owned("ads-0", NOW_S, {JobKey("ads-0", "ctr")}) == 0
    for left in (1, 0):
        book.note([(("ads-0", f"ctr-trainer-{left}"), None)])
        book.translate(NOW_S)
        book.sort()
        assert [book.count_owned(namespace, NOW_S) for namespace in ("ads-0", "ads-1")] == [2, 2]
    assert [book.count_owned(namespace, NOW_S + 31) for namespace in ("ads-0", "ads-1", "ads-2")] == [0, 2, 0]
