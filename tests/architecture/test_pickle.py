"""Whoever unpickles bytes runs what the bytes say: only a broker and its children, and Spark's own processes, do so.

Each module here says between whom its pickles go. Bytes of a client, of a log, of a store or of a file are none.
"""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "cordwood"

BETWEEN = {
    "log/reading/apart.py": "a broker and the process that it started, over their pipes",
    "pipelines/postgresql/copying.py": "tasks of a Spark job and its driver, in the job's result",
    "pipelines/tables/data_files.py": "tasks of a Spark job and its driver, in the job's result",
    "spark/sink/staging.py": "tasks of a Spark job and its driver, in the job's result",
}
RUNS_BYTES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "multiprocessing", "joblib"}
"""Modules that make objects of bytes, and run code for it."""


def _imported(path: Path) -> set[str]:
    found = set()
    for each in ast.walk(ast.parse(path.read_text())):
        if isinstance(each, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            found.add(each.module.partition(".")[0])
            # `concurrent.futures` has processes that pickle, and threads that do not.
            found |= {"multiprocessing" for alias in each.names if alias.name == "ProcessPoolExecutor"}
    return found


def test_only_these_modules_pickle() -> None:
    used = {str(path.relative_to(SOURCE)): RUNS_BYTES & _imported(path) for path in SOURCE.rglob("*.py")}
    assert {name: modules for name, modules in used.items() if modules} == {name: {"pickle"} for name in BETWEEN}


def test_the_process_of_a_broker_takes_pickles_from_its_pipes_alone() -> None:
    text = (SOURCE / "log/reading/apart.py").read_text()
    assert not {"socket", "asyncio", "http"} & _imported(SOURCE / "log/reading/apart.py")
    assert text.count("pickle.loads(") == 3, "name where the bytes of another pickle come from"
