"""Tasks by name: what lm-evaluation-harness logs, read as items, and a real run where it is installed."""

import json
from importlib.util import find_spec

import pytest

from plaudit.errors import UserError
from plaudit.evaluation.policies.alignment_tax import (
    HarnessTasks,
    items_from_samples,
    paired_changes,
    run_harness,
)
from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from tests.evaluation.policies.duels import DRAWS

HAVE = find_spec("lm_eval") is not None
TASK = """\
task: little_sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{rows}"}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: ["3", "7"]
doc_to_target: "{{{{label}}}}"
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""


def sample(place, value, *, filter="none", metric="acc"):
    return {"doc_id": place, "doc_hash": f"h{place}", "filter": filter, "metrics": [metric], metric: value}


def test_the_first_metric_of_the_first_filter_is_read():
    logged = [sample(0, 1.0), sample(1, 0, filter="strict"), sample(2, True)]
    found = list(items_from_samples("sums", logged, {"acc": True}))
    assert [(one.task, one.name, one.prompt, one.score) for one in found] == [
        ("sums (acc)", "0 h0", "h0", 1.0),
        ("sums (acc)", "2 h2", "h2", 1.0),
    ]


def test_where_less_is_better_more_is_worse():
    [found] = items_from_samples("words", [sample(0, 2.5, metric="loss")], {"loss": False})
    assert found.score == -2.5


def test_a_metric_of_no_number_and_a_task_without_items_are_refused():
    with pytest.raises(UserError, match=r"perplexity is no number for each item \(\(-3\.0, 4\)\)"):
        list(items_from_samples("words", [sample(0, (-3.0, 4), metric="perplexity")], {}))
    with pytest.raises(UserError, match="sums: it has no items"):
        list(items_from_samples("sums", [], {}))


@pytest.mark.skipif(HAVE, reason="lm-evaluation-harness is installed")
def test_without_it_the_extra_is_named(tmp_path):
    with pytest.raises(UserError, match=r'pip install "plaudit\[tax\]"'):
        run_harness(tmp_path, HarnessTasks(tasks=("little_sums",)))


@pytest.mark.skipif(not HAVE, reason="lm-evaluation-harness is not installed")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_local_task_is_asked_and_paired(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"question": f"What is {n} plus 1?", "label": n % 2}) + "\n" for n in range(6))
    )
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "little_sums.yaml").write_text(TASK.format(rows=rows))
    asked = HarnessTasks(tasks=("little_sums",), folder=tmp_path / "tasks")
    found = run_harness(SHIPPED_MODEL_FOLDER, asked)
    assert len(found) == 6
    assert {one.score for one in found} <= {0.0, 1.0}
    [same] = paired_changes(found, run_harness(SHIPPED_MODEL_FOLDER, asked), DRAWS)
    assert (same.task, same.change.value) == ("little_sums (acc)", 0.0)
    with pytest.raises(UserError, match=r"there is no task litle_sums in .*did you mean little_sums"):
        run_harness(SHIPPED_MODEL_FOLDER, HarnessTasks(tasks=("litle_sums",), folder=tmp_path / "tasks"))
