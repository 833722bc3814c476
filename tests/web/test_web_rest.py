"""The REST interface: its answers are as its description says, and show what the viewer may see."""

import json

import jsonschema
import pytest
from test_web_server import TOKEN, forecasted, site
from web_sources import HOSTILE, page_source, write_journal

from gangsched.web.rest.answers import LISTINGS, PREFIX, description

BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def fetched(web, path, status=200, **more):
    answer, text = await web.get(path, **more)
    assert (answer.status, answer.content_type) == (status, "application/json"), text
    return json.loads(text)


@pytest.mark.parametrize("hostile", [False, True])
async def test_answers_are_as_the_description_says(hostile):
    async with site(page_source(hostile=hostile)) as web:
        await forecasted(web.keeper)
        document = await fetched(web, "/openapi.json")
        assert document == json.loads(json.dumps(description(login=False)))
        tried = 0
        for path, operations in document["paths"].items():
            asked = path.replace("{namespace}", "ns").replace("{name}", "waits")
            answer = await fetched(web, asked)
            schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            jsonschema.validate(answer, {**schema, "components": document["components"]})
            tried += 1
        assert tried == len(LISTINGS) + 2


async def test_a_gang_has_its_reason_its_start_and_its_pods():
    async with site(page_source()) as web:
        await forecasted(web.keeper)
        waits = await fetched(web, f"{PREFIX}/gangs/ns/waits")
        assert waits["gang"]["reason"] == "NotEnoughFree"
        assert waits["gang"]["start"]["span"].keys() == {"low_s", "median_s", "high_s"}
        own = await fetched(web, f"{PREFIX}/gangs/ns/own")
        assert [pod["node"] for pod in own["pods"]] == ["a"]
        missing = await fetched(web, f"{PREFIX}/gangs/ns/none", 404)
        assert missing == {"error": "There is no gang 'ns/none'."}


async def test_lists_are_filtered_and_paged():
    async with site(page_source()) as web:
        await forecasted(web.keeper)
        everything = await fetched(web, f"{PREFIX}/gangs")
        assert (everything["total"], everything["next"]) == (3, None)
        first = await fetched(web, f"{PREFIX}/gangs?limit=2")
        rest = await fetched(web, f"{PREFIX}/gangs?limit=2&offset={first['next']}")
        assert first["items"] + rest["items"] == everything["items"]
        placed = await fetched(web, f"{PREFIX}/gangs?state=Placed&namespace=ns")
        assert [row["id"] for row in placed["items"]] == ["ns/own"]
        for query, word in (
            ("limit=-1", "limit='-1' must be a whole number from 0 to 5000."),
            ("limit=99999", "from 0 to 5000"),
            ("offset=x", "offset='x'"),
            ("sort=id", "gangs has no query 'sort'; there are: limit, offset, queue"),
        ):
            assert word in (await fetched(web, f"{PREFIX}/gangs?{query}", 400))["error"]


async def test_tokens_see_what_their_account_may_see():
    async with site(page_source(), login=True) as web:
        await forecasted(web.keeper)
        for path in (f"{PREFIX}/gangs", "/openapi.json"):
            problem = await fetched(web, path, 401)
            assert problem["error"] == "Send a token: Authorization: Bearer TOKEN."
        wrong = await fetched(web, f"{PREFIX}/gangs", 401, headers={"Authorization": "Bearer x"})
        assert wrong["error"] == "The token is not valid for this cluster."
        answer = await fetched(web, f"{PREFIX}/gangs", headers=BEARER)
        assert {row["id"] for row in answer["items"]} == {"ns/own", "ns/waits"}
        hidden = await fetched(web, f"{PREFIX}/gangs/theirs/secret", 404, headers=BEARER)
        assert "no gang" in hidden["error"]
        for path in ("cluster", *LISTINGS, "gangs/ns/waits"):
            text = json.dumps(await fetched(web, f"{PREFIX}/{path}", headers=BEARER))
            assert "secret" not in text, path
        assert len(web.sessions._sessions) == 1, "one session for all requests of a token"
        page, _ = await web.get("/gangs", headers=BEARER)
        assert page.status == 303, "pages take no token"


async def test_a_journal_has_the_interface_at_each_moment(tmp_path):
    from test_moments import make_source, queue_rows

    from gangsched.web.moments import JournalMoments, JournalReader

    reader = JournalReader(write_journal(tmp_path / "journal", 10), queue_rows)
    reader.read()
    shown = JournalMoments(reader, make_source)
    async with site(shown) as web:
        gangs = await fetched(web, f"/at/55{PREFIX}/gangs")
        assert {row["id"] for row in gangs["items"]} == {"ns/g3", "ns/g4"}
        assert (await fetched(web, f"{PREFIX}/gangs"))["total"] == 0, "the end of the journal"
        runs = await fetched(web, f"/at/55{PREFIX}/runs")
        assert [run["gang"] for run in runs["items"]] == ["ns/g0", "ns/g1", "ns/g2"]


async def test_names_that_attack_stay_text():
    async with site(page_source(hostile=True)) as web:
        await forecasted(web.keeper)
        answer, _ = await web.get(f"{PREFIX}/gangs")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        everything = await fetched(web, f"{PREFIX}/gangs")
        assert any(HOSTILE in row["id"] for row in everything["items"])
