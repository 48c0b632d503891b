"""Runs tests that are coroutines, each on a loop of its own: a folder's conftest.py imports the hook."""

import asyncio
import inspect
from typing import Any

import pytest
from tests.deadline import TEST_WITHIN_S


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), timeout=TEST_WITHIN_S))
    return True
