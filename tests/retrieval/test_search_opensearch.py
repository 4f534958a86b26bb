"""OpenSearch's REST interface, against a small server that keeps documents and checks what it is sent."""

import json
import re
import threading

import pytest

from tests.retrieval.search_servers import PASSAGES, answering, command, serving, write_corpus
from verl_trgrpo.retrieval import BackendBusyError, BackendError, BackendTimeoutError, Hit
from verl_trgrpo.retrieval.corpus import Corpus
from verl_trgrpo.retrieval.opensearch_backend import OpenSearchOptions
from verl_trgrpo.retrieval.opensearch_index import load_corpus


class Cluster:
    """Indexes, aliases, `_bulk` and `_msearch` as the public REST reference describes them; scores count equal words."""

    def __init__(self):
        self.indexes, self.aliases, self.requests = {}, {}, []
        self.fail = {}  # path pattern -> status
        self.refuse_documents = False

    def answer(self, method, path, headers, body):
        self.requests.append((method, path, headers.get("Content-Type"), body))
        path = path.split("?")[0]
        for pattern, status in self.fail.items():
            if re.search(pattern, path):
                return self.reply(status, {"error": {"type": "made up"}, "status": status})
        if path == "/_bulk":
            return self.bulk(body)
        if path.endswith("/_msearch"):
            return self.msearch(path.split("/")[1], body)
        if path == "/_aliases":
            return self.change_aliases(json.loads(body))
        if path.startswith("/_alias/"):
            found = {name: {"aliases": {}} for name in self.aliases.get(path.split("/")[2], [])}
            return self.reply(200 if found else 404, found)
        name, _, action = path[1:].partition("/")
        if method == "PUT":
            self.indexes[name] = {}
            return self.reply(200, {"acknowledged": True})
        if method == "DELETE":
            return self.reply(200 if self.indexes.pop(name, None) is not None else 404, {})
        documents = self.documents(name)
        if documents is None:
            return self.reply(404, {"error": {"type": "index_not_found_exception"}, "status": 404})
        return self.reply(200, {"count": len(documents)} if action == "_count" else {"_shards": {}})

    def reply(self, status, content):
        return status, {"Content-Type": "application/json"}, json.dumps(content).encode()

    def documents(self, name):
        names = self.aliases.get(name, [name])
        return self.indexes.get(names[0])

    def change_aliases(self, body):
        for action in body["actions"]:
            ((kind, what),) = action.items()
            names = self.aliases.setdefault(what["alias"], [])
            (names.append if kind == "add" else names.remove)(what["index"])
        return self.reply(200, {"acknowledged": True})

    def bulk(self, body):
        assert body.endswith(b"\n")
        lines, items = [json.loads(line) for line in body.splitlines()], []
        for action, source in zip(lines[::2], lines[1::2], strict=True):
            where = action["index"]
            if self.refuse_documents:
                items.append({"index": {**where, "status": 400, "error": {"type": "mapper_parsing_exception"}}})
            else:
                self.indexes[where["_index"]][where["_id"]] = source
                items.append({"index": {**where, "status": 201}})
        return self.reply(200, {"errors": self.refuse_documents, "items": items})

    def msearch(self, name, body):
        assert body.endswith(b"\n")
        lines, responses = [json.loads(line) for line in body.splitlines()], []
        for _, search in zip(lines[::2], lines[1::2], strict=True):
            text = search["query"]["match"]["contents"]["query"]
            if text == "fail":
                responses.append({"error": {"type": "search_phase_execution_exception"}, "status": 400})
                continue
            words, found = set(re.findall(r"\w+", text.lower())), []
            for key, source in self.documents(name).items():
                score = float(len(words & set(re.findall(r"\w+", source["contents"].lower()))))
                if score:
                    found.append({"_index": name, "_id": key, "_score": score, "_source": source})
            found.sort(key=lambda hit: -hit["_score"])
            responses.append({"status": 200, "hits": {"hits": found[: search["size"]]}})
        return self.reply(200, {"took": 1, "responses": responses})


@pytest.fixture
def cluster():
    cluster = Cluster()
    with answering(cluster) as url:
        cluster.url = url
        cluster.options = OpenSearchOptions(url, "wiki", timeout=60)
        yield cluster


@pytest.fixture
def loaded(cluster, tmp_path):
    load_corpus(cluster.options, Corpus(write_corpus(tmp_path / "corpus.jsonl", PASSAGES)))
    return cluster


def test_passages_are_sent_as_bulk_lines_and_the_alias_is_last(cluster, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl", {"0": '"東京"\ntext', "1": "two"})
    result = load_corpus(cluster.options, Corpus(corpus))
    assert result.passages == 2 and result.replaced == []
    assert re.fullmatch(r"wiki-\d{13}", result.index)
    assert [(method, path.split("?")[0]) for method, path, _, _ in cluster.requests] == [
        ("PUT", f"/{result.index}"),
        ("POST", "/_bulk"),
        ("POST", f"/{result.index}/_refresh"),
        ("POST", f"/{result.index}/_count"),
        ("HEAD", "/_alias/wiki"),
        ("POST", "/_aliases"),
    ]
    bulk = next(body for _, path, _, body in cluster.requests if path == "/_bulk")
    expected = (
        f'{{"index":{{"_id":"0","_index":"{result.index}"}}}}\n{{"contents":"\\"東京\\"\\ntext"}}\n'
        f'{{"index":{{"_id":"1","_index":"{result.index}"}}}}\n{{"contents":"two"}}\n'
    )
    assert bulk == expected.encode()
    mapping = json.loads(cluster.requests[0][3])["mappings"]["properties"]
    assert mapping == {"contents": {"type": "text", "analyzer": "english", "index_options": "freqs"}}


def test_a_second_load_moves_the_alias_in_one_request_and_deletes_nothing(loaded, tmp_path):
    (first,) = loaded.aliases["wiki"]
    result = load_corpus(loaded.options, Corpus(write_corpus(tmp_path / "c", {"9": "new"})))
    assert result.replaced == [first]
    assert loaded.aliases == {"wiki": [result.index]}
    assert set(loaded.indexes) == {first, result.index}
    changes = json.loads(loaded.requests[-1][3])["actions"]
    assert [next(iter(change)) for change in changes] == ["remove", "add"]


def test_a_batch_of_queries_is_one_msearch(loaded):
    backend = loaded.options.open()
    before = len(loaded.requests)
    results = backend.search(["Polonium metal", "", "東京"], 2)
    assert [[hit.id for hit in hits] for hits in results] == [["1", "0"], [], ["3"]]
    assert results[2] == [Hit("3", PASSAGES["3"], 1.0)]
    ((method, path, kind, body),) = loaded.requests[before:]
    assert (method, path) == ("POST", "/wiki/_msearch")
    assert kind in ("application/x-ndjson", "application/json")  # the reference allows both for _msearch
    tail = '"size":2,"_source":["contents"],"track_total_hits":false}\n'
    assert body.decode() == "".join(
        f'{{}}\n{{"query":{{"match":{{"contents":{{"query":"{query}"}}}}}},{tail}'
        for query in ("Polonium metal", "", "東京")
    )
    assert backend.search([], 3) == []


@pytest.mark.parametrize("query", ['a"b\\c\nd', "\x00\x1b", "\ud800", "AND (", "x:y", "w " * 500_000])
def test_a_hostile_query_stays_one_line_and_short(loaded, query):
    assert len(loaded.options.open().search([query, "polonium"], 3)[1]) == 2
    lines = loaded.requests[-1][3].splitlines()
    assert len(lines) == 4
    assert len(json.loads(lines[1])["query"]["match"]["contents"]["query"]) <= 1000


@pytest.mark.parametrize(
    ("status", "kind"), [(429, BackendBusyError), (503, BackendBusyError), (500, BackendError), (404, BackendError)]
)
def test_errors_of_the_cluster_are_told_apart(loaded, status, kind):
    backend = loaded.options.open()
    loaded.fail["_msearch"] = status
    with pytest.raises(kind, match=str(status)):
        backend.search(["a"], 3)
    loaded.fail.clear()
    assert len(backend.search(["polonium"], 3)[0]) == 2


def test_an_error_of_one_query_is_an_error(loaded):
    with pytest.raises(BackendError, match=r"answered 400.*search_phase"):
        loaded.options.open().search(["polonium", "fail"], 3)


def test_a_cluster_or_an_index_that_is_not_there(cluster):
    with pytest.raises(BackendError, match="404"):
        cluster.options.open()
    with pytest.raises(BackendError):
        OpenSearchOptions("http://127.0.0.1:1", "wiki", timeout=2).open()


def test_a_slow_cluster_is_a_timeout(loaded):
    options = OpenSearchOptions(loaded.url, "wiki", timeout=0.3)
    backend, gate, answer = options.open(), threading.Event(), loaded.answer
    loaded.answer = lambda *request: gate.wait(600) and answer(*request)
    try:
        with pytest.raises(BackendTimeoutError):
            backend.search(["a"], 1)
    finally:
        gate.set()


@pytest.mark.parametrize("damage", ["refused documents", "equal ids", "no passages", "bulk fails"])
def test_a_failed_load_leaves_the_alias_and_no_index_behind(loaded, tmp_path, damage):
    aliases, indexes = dict(loaded.aliases), set(loaded.indexes)
    path = write_corpus(tmp_path / "c", {"9": "new"})
    if damage == "equal ids":
        path.write_text(path.read_text() * 2)
    if damage == "no passages":
        path.write_text("x\n")
    if damage == "bulk fails":
        loaded.fail["_bulk"] = 500
    loaded.refuse_documents = damage == "refused documents"
    with pytest.raises((BackendError, ValueError)):
        load_corpus(loaded.options, Corpus(path))
    assert (loaded.aliases, set(loaded.indexes)) == (aliases, indexes)


def test_wrong_options_are_all_reported_at_once(tmp_path):
    with pytest.raises(ValueError, match="5 problems"):
        OpenSearchOptions("x", "Wiki 18", username="u", ca_certs=tmp_path / "nowhere", timeout=0)
    assert "secret" not in repr(OpenSearchOptions("http://x", "wiki", username="u", password="secret"))


@pytest.mark.slow
def test_the_command_line_loads_and_serves(cluster, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl", PASSAGES)
    where = ["--backend", "opensearch", "--url", cluster.url, "--opensearch-index", "wiki"]
    credentials = {"OPENSEARCH_USERNAME": "u", "OPENSEARCH_PASSWORD": "p"}
    result = command("index", "--corpus", corpus, *where, **credentials)
    assert result.returncode == 0, result.stderr
    assert "wiki now means wiki-" in result.stdout and "5 passages" in result.stdout
    with serving(*where, **credentials) as server:
        assert server.get("/health").json()["documents"] == 5
        assert [hit["id"] for hit in server.post({"queries": ["polonium metal"]}).json()["result"][0]] == ["1", "0"]
        cluster.fail["_msearch"] = 500
        assert server.post({"queries": ["polonium"]}).status_code == 502
