"""The advantages: each name, and the module that it lives in; ``__init__.py`` reads it."""

from plaudit.advantages.baseline import (
    greedy_baseline as greedy_baseline,
)
from plaudit.advantages.baseline import (
    running_mean_baseline as running_mean_baseline,
)
from plaudit.advantages.baseline import (
    updated_running_mean as updated_running_mean,
)
from plaudit.advantages.baseline import (
    win_probability_advantage as win_probability_advantage,
)
from plaudit.advantages.group import (
    centred as centred,
)
from plaudit.advantages.group import (
    leave_one_out as leave_one_out,
)
from plaudit.advantages.group import (
    nonzero_std_groups as nonzero_std_groups,
)
from plaudit.advantages.group import (
    pass_rate as pass_rate,
)
from plaudit.advantages.group import (
    steps_z_score as steps_z_score,
)
from plaudit.advantages.group import (
    z_score as z_score,
)
from plaudit.advantages.temporal import (
    bandit as bandit,
)
from plaudit.advantages.temporal import (
    gae as gae,
)
from plaudit.advantages.temporal import (
    last_value as last_value,
)
from plaudit.advantages.temporal import (
    monte_carlo as monte_carlo,
)
from plaudit.advantages.temporal import (
    one_step as one_step,
)
from plaudit.advantages.temporal import (
    reinforce_plus_plus as reinforce_plus_plus,
)
from plaudit.advantages.temporal import (
    returns as returns,
)
from plaudit.advantages.temporal import (
    reward_to_go as reward_to_go,
)
from plaudit.advantages.temporal import (
    step_rewards as step_rewards,
)
from plaudit.advantages.temporal import (
    token_rewards as token_rewards,
)
