"""Models, agents and hosts that are functions of the program."""

import asyncio

from cellar import AsyncSandbox, HttpResponse, Sandbox


def test_models_and_agents():
    def llm(prompt, *, model, system):
        return f"{model}:{system}:{prompt}"

    def agent(prompt, *, schema, **more):
        if schema:
            return {"n": 1}
        return s.run(f"{prompt}").text + more["agent_type"]

    with Sandbox(llm=llm, agent=agent) as s:
        assert s.run("llm('hi', model='smol', system='be brief')").text == "'smol:be brief:hi'"
        assert s.run("await llm('hi')", language="js").text == "default:None:hi"
        assert s.run("x = 1\nawait agent.aio('x + 1')").text == "'2task'"
        assert s.run("agent('x', schema={'type': 'object'})").json == {"n": 1}

    def fails(prompt):
        raise ValueError("on purpose")

    with Sandbox(llm=fails) as s:
        assert "ValueError: on purpose" in s.run("llm('x')").error.message
        assert s.run("agent('x')").is_error


def test_requests():
    seen = []

    def http(request):
        seen.append(request)
        return HttpResponse(201, request.body or b"none", {"x-from": "here"})

    with Sandbox(http=http) as s:
        code = "import urllib.request\nr = urllib.request.urlopen('https://example.com/a', data=b'\\x00\\xff')\nr.status, r.read(), r.headers['x-from']"
        assert s.run(code).text == "(201, b'\\x00\\xff', 'here')"
        assert s.run("await (await fetch('https://example.com/b')).text()", language="js").text == "none"
    assert [(one.method, one.url) for one in seen] == [("POST", "https://example.com/a"), ("GET", "https://example.com/b")]


def test_coroutines_answer_on_the_loop():
    async def main():
        loop = asyncio.get_running_loop()

        async def llm(prompt):
            assert asyncio.get_running_loop() is loop
            return prompt.upper()

        async with AsyncSandbox(llm=llm) as s:
            assert (await s.run("llm('a')")).text == "'A'"

    asyncio.run(main())
