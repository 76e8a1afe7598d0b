"""The advantages: each name, and the module that it lives in; ``__init__.py`` reads it."""

from plaudit.advantages.group import (
    centred as centred,
    greedy_baseline as greedy_baseline,
    leave_one_out as leave_one_out,
    nonzero_std_groups as nonzero_std_groups,
    pass_rate as pass_rate,
    running_mean_baseline as running_mean_baseline,
    steps_z_score as steps_z_score,
    updated_running_mean as updated_running_mean,
    win_probability_advantage as win_probability_advantage,
    z_score as z_score,
)
from plaudit.advantages.temporal import (
    bandit as bandit,
    gae as gae,
    monte_carlo as monte_carlo,
    one_step as one_step,
    reinforce_plus_plus as reinforce_plus_plus,
    returns as returns,
    reward_to_go as reward_to_go,
    step_rewards as step_rewards,
    token_rewards as token_rewards,
)
