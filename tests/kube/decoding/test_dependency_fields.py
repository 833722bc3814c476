"""Dependencies and series, as users write them."""

import json

import pytest
from builders import written

from gangsched.core.model.dependencies import Dependency, DependencyCondition, Series
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.podgroups import pod_group
from gangsched.kube.decoding.quantities import DecodeError


def read(spec=None, **annotations):
    """Return the gang of a PodGroup `evaluate`."""
    keys = {f"gangsched.io/{key}": value for key, value in annotations.items()}
    raw = written("evaluate", "u", spec or {"minMember": 1}, annotations=keys)
    assert json.loads(raw)["metadata"]["annotations"] == keys
    return pod_group(ApiObject(raw).group, {})[0]


def test_annotations_and_fields_say_the_same():
    by_annotation = read(after="afterok:train, afternotok:other", series="sweep:4")
    fields = {
        "minMember": 1,
        "dependencies": [{"name": "train"}, {"name": "other", "condition": "Failed"}],
        "series": {"name": "sweep", "maxRunning": 4},
    }
    wanted = (
        Dependency("train", DependencyCondition.SUCCEEDED),
        Dependency("other", DependencyCondition.FAILED),
    )
    for gang in (by_annotation, read(fields)):
        assert gang.dependencies == wanted
        assert gang.series == Series("sweep", 4)


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"after": "train"}, "gangsched.io/after has 'train'; it must be afterok, afterany"),
        ({"after": "afterok:"}, "has 'afterok:'; it must be"),
        ({"after": "before:x"}, "has 'before:x'; it must be"),
        ({"after": "afterok:NOT_A_NAME"}, "spec"),
        ({"after": "afterok:evaluate"}, "evaluate depends on itself"),
        ({"after": ",".join(f"after:g{n}" for n in range(65))}, "names more than 64 gangs"),
        ({"series": "sweep"}, "is 'sweep'; it must be NAME:MAXRUNNING"),
        ({"series": "sweep:0"}, "it must be NAME:MAXRUNNING"),
        ({"series": "sweep:99999"}, "from 1 to 10000"),
    ],
)
def test_a_bad_value_is_named(annotations, sentence):
    with pytest.raises(DecodeError, match="PodGroup ns/evaluate") as caught:
        read(**annotations)
    assert sentence in str(caught.value)
