"""Ranking by BM25, and queries of every kind."""

import itertools
import math
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.retrieval.servers import PASSAGES, write_corpus
from verl_trgrpo.retrieval.index import Index, IndexOptions, build_index

HOSTILE = {
    "colon": "contents:polonium",
    "quote": '"polonium',
    "brackets": "polonium [a TO b] {x}",
    "operators": "AND OR NOT polonium",
    "signs": "+polonium -polonium ^2 ~3 polonium* ?",
    "control characters": "polonium\x00\x01\x1b\x7f\r\n\t",
    "surrogates": "polonium \ud83d \udc4d",
    "field and range": "id:[* TO *] polonium",
    "JSON": '{"query": {"match_all": {}}} polonium',
    "a megabyte": "polonium " * 120_000,
    "a hundred thousand words": "polonium " + " ".join(f"w{n}" for n in range(100_000)),
}

NOTHING = ["", " ", "\n", "\x00", "?!.,;:", "()", '""', "\ud800", "🤷", "x" * 1_000_000]


@pytest.fixture(scope="module")
def index(small_index):
    return Index(small_index)


def ids(index, query, topk=10):
    return [hit.id for hit in index.search([query], topk)[0]]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_query_is_a_bag_of_words(index, name):
    assert {"0", "1"} <= set(ids(index, HOSTILE[name]))


@pytest.mark.parametrize("query", NOTHING, ids=range(len(NOTHING)))
def test_a_query_without_words_of_the_corpus_finds_nothing(index, query):
    assert ids(index, query) == []


@given(
    st.lists(
        st.text(alphabet=st.characters(), max_size=200) | st.from_regex(r'[\w:"()\[\]{}+^~*?\\/ -]{0,50}'), max_size=4
    )
)
@settings(max_examples=200, deadline=None)
def test_no_query_raises(index, queries):
    results = index.search(queries, 3)
    assert len(results) == len(queries)
    for hits in results:
        assert all(PASSAGES[hit.id] == hit.contents for hit in hits)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_case_accents_and_english_endings_do_not_matter(index):
    assert ids(index, "BEYONCE KNOWLES SINGING") == ids(index, "beyoncé knowles sings") == ["2"]
    assert ids(index, "東京") == ["3"]
    assert index.search(["tokyo"], 1)[0][0].contents == PASSAGES["3"]


def test_stop_words_count_only_where_there_is_nothing_else(index):
    assert ids(index, "the in and of polonium") == ids(index, "polonium") == ["1", "0"]
    assert set(ids(index, "the")) == {"3", "4"}


def test_no_more_hits_than_asked_for_or_than_there_are(index):
    assert len(ids(index, "curie paris tokyo london beyonce", topk=2)) == 2
    assert len(ids(index, "curie paris tokyo london beyonce", topk=10**9)) == 5
    assert index.search([], 3) == []


def test_a_panic_of_tantivy_is_an_ordinary_error(small_index, monkeypatch):
    class PanicException(BaseException):  # what tantivy raises is known by its name
        pass

    def panic(*_):
        raise PanicException("damaged")

    monkeypatch.setattr(Index, "_search", panic)
    with pytest.raises(RuntimeError, match="tantivy failed: damaged"):
        Index(small_index).search(["a"], 1)


def test_threads_get_their_own_answers(index):
    queries = ["polonium", "tokyo", "beyoncé", "daltrey"] * 50
    alone = [index.search([query], 3) for query in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: index.search([query], 3), queries)) == alone


def bm25(documents: dict[str, list[str]], query: list[str]) -> dict[str, float]:
    """Robertson's BM25 with k1 1.2 and b 0.75 and Lucene's idf, straight from the formula."""
    mean = sum(map(len, documents.values())) / len(documents)
    containing = {word: sum(word in other for other in documents.values()) for word in query}
    scores = {}
    for name, words in documents.items():
        counts, score = Counter(words), 0.0
        for word in query:
            idf = math.log(1 + (len(documents) - containing[word] + 0.5) / (containing[word] + 0.5))
            norm = 1.2 * (1 - 0.75 + 0.75 * len(words) / mean)
            score += idf * counts[word] * 2.2 / (counts[word] + norm)
        if score > 0:
            scores[name] = score
    return scores


def test_order_and_scores_agree_with_the_formula(tmp_path):
    rng = random.Random(1)
    # Words with a digit have no English endings; up to 40 words tantivy stores a passage's length exactly.
    words = [f"w{n}x" for n in range(60)]
    weights = list(itertools.accumulate(1 / (n + 1) for n in range(60)))
    documents = {str(n): rng.choices(words, cum_weights=weights, k=rng.randint(3, 40)) for n in range(200)}
    corpus = write_corpus(tmp_path / "corpus.jsonl", {key: " ".join(text) for key, text in documents.items()})
    build_index(IndexOptions(corpus, tmp_path / "out"))
    index = Index(tmp_path / "out")
    for _ in range(20):
        query = rng.choices(words, k=rng.randint(1, 8))
        expected = bm25(documents, query)
        hits = index.search([" ".join(query)], 10)[0]
        assert [hit.score for hit in hits] == pytest.approx(sorted(expected.values(), reverse=True)[:10], rel=1e-5)
        assert [expected[hit.id] for hit in hits] == pytest.approx([hit.score for hit in hits], rel=1e-5)
