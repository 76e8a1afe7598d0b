"""Settings that cannot be are refused in words."""

import pytest

from plaudit.errors import UserError
from plaudit.rollouts.sampler import SamplingSettings


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"temperature": -0.1}, "temperature -0.1: expected 0"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"temperature": float("inf")}, "temperature inf"),
        ({"top_p": 0.0}, "top_p 0.0: expected a share above 0"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"top_p": float("nan")}, "top_p nan"),
        ({"max_tokens": 0}, "max_tokens 0: expected 1 or more"),
        ({"top_k": -1}, "top_k -1: expected 1 or more, or 0"),
        ({"min_p": 1.5}, "min_p 1.5: expected a share"),
        ({"min_p": float("nan")}, "min_p nan"),
        ({"stop": ("w7", "")}, "an empty string would end every answer"),
    ],
)
def test_a_value_that_cannot_be_is_refused(wrong, complaint):
    with pytest.raises(UserError, match=complaint):
        SamplingSettings(**wrong)


def test_whole_numbers_are_numbers_too():
    assert SamplingSettings(temperature=0, top_p=1).greedy
    assert not SamplingSettings().greedy
