"""The server: who may ask, what it sends, and that no route opens a file."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re

import pytest
from small_run import HOSTILE

from nfcgcn.explore import make_page, page_file
from nfcgcn.explore import page as page_module


def request(server, method, path, body=None, **headers):
    host = f"127.0.0.1:{server.server_port}"
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    sent = {"Host": host, "Origin": f"http://{host}", "X-Token": server.token}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    sent.setdefault("Content-Length", str(len(content)))
    for name, value in sent.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(content)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer, text


def test_a_question_and_its_answer(server, explorer):
    answer, text = request(server, "POST", "/ask", {"ask": "node", "node": 3})
    assert answer.status == 200
    assert json.loads(text) == json.loads(json.dumps(explorer.answer({"ask": "node", "node": 3})))


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.link == f"http://127.0.0.1:{server.server_port}/?token={server.token}"
    assert len(server.token) >= 32


REFUSED = {
    "no token": {"X_Token": None},
    "wrong token": {"X_Token": "x" * 32},
    "token that is no text": {"X_Token": "\xff\xfe"},
    "another host": {"Host": "evil.example"},
    "another port": {"Host": "127.0.0.1:1"},
    "no host": {"Host": None},
    "another origin": {"Origin": "http://evil.example"},
    "an origin of a file": {"Origin": "null"},
    "no origin": {"Origin": None},
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
def test_others_may_not_ask(server, headers):
    answer, text = request(server, "POST", "/ask", {"ask": "node", "node": 3}, **headers)
    assert answer.status == 403
    assert list(json.loads(text)) == ["error"]


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/graph.gexf", "/?token="])
def test_the_page_needs_the_secret(server, path):
    answer, text = request(server, "GET", path)
    assert answer.status == 403
    assert b"script" not in text


def test_the_page_needs_the_right_host(server):
    answer, _ = request(server, "GET", f"/?token={server.token}", Host="evil.example", Origin=None)
    assert answer.status == 403


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/static/main.js", "/vendor/sigma.min.js", "//etc/passwd", "/%2e%2e/x", "/ask"]
)
def test_no_route_opens_a_file(server, path):
    answer, text = request(server, "GET", f"{path}?token={server.token}", Origin=None)
    assert (answer.status, json.loads(text)) == (404, {"error": "there is nothing here"})


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD"])
def test_other_methods_are_not_known(server, method):
    assert request(server, method, "/ask")[0].status == 501


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"\xff", 400), (b"[" * 60_000, 400), ([], 400), ({"ask": "node", "node": 99}, 400)],
)
def test_bad_questions_are_refused(server, body, status):
    answer, text = request(server, "POST", "/ask", body)
    assert answer.status == status
    assert json.loads(text)["error"]


@pytest.mark.parametrize("length", ["99999999999", "-1", "x", ""])
def test_a_question_is_short(server, length):
    assert request(server, "POST", "/ask", Content_Length=length)[0].status == 413


def test_a_mistake_of_ours_is_an_answer(server, monkeypatch, caplog):
    monkeypatch.setattr(server.explorer, "answer", lambda _: 1 / 0)
    answer, text = request(server, "POST", "/ask", {})
    assert (answer.status, json.loads(text)) == (500, {"error": "the answer failed: ZeroDivisionError"})


def test_headers_and_policy(server):
    answer, text = request(server, "GET", f"/?token={server.token}", Origin=None)
    assert answer.status == 200
    policy = answer.getheader("Content-Security-Policy")
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert answer.getheader("Server") == "nfcgcn"
    page = text.decode()
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 3
    for script in (*scripts, *re.findall(r"<style>(.*?)</style>", page, re.DOTALL)):
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert server.token not in page


def test_the_graph_for_other_programs(server):
    answer, text = request(server, "GET", f"/graph.gexf?token={server.token}", Origin=None)
    assert answer.status == 200
    assert text.startswith(b"<?xml")


def outside(page):
    return re.findall(r"""(?:src|href)=["'](?!data:)([^"']*)""", page)


def test_a_file_holds_all_it_needs(explorer, monkeypatch):
    monkeypatch.setattr(page_module, "MOST_NODES_IN_A_FILE", 6)
    counts = []
    page = page_file(explorer, first=4, on_answer=lambda number, of: counts.append((number, of)))
    assert outside(page) == []
    assert "connect-src 'none'" in page.replace("&#x27;", "'")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["start"] == "node 4"
    assert len(data["full"]) == 6
    assert data["full"][0] == 4
    assert data["answers"]['{"ask":"why","node":4,"target":1}'] == json.loads(
        json.dumps(explorer.answer({"ask": "why", "node": 4, "target": 1}))
    )
    assert counts[-1] == (len(counts), len(counts))
    assert data["scene"]["names"][0] == HOSTILE
    assert page.count("<script>alert") == 0


def test_hostile_titles_are_text():
    page = make_page(f"{HOSTILE} & more", start="</script><b>").html
    assert f"<title>{HOSTILE.replace('<', '&lt;').replace('>', '&gt;')} &amp; more</title>" in page
    assert "</script><b>" not in page
