"""The losses: each name, and the module that it lives in; ``__init__.py`` reads it."""

from plaudit.losses.divergence import full_vocabulary_kl as full_vocabulary_kl
from plaudit.losses.divergence import k1 as k1
from plaudit.losses.divergence import k2 as k2
from plaudit.losses.divergence import k3 as k3
from plaudit.losses.kl_control import (
    double_or_halve_beta as double_or_halve_beta,
)
from plaudit.losses.kl_control import (
    proportional_beta as proportional_beta,
)
from plaudit.losses.policy import (
    cispo as cispo,
)
from plaudit.losses.policy import (
    clipped as clipped,
)
from plaudit.losses.policy import (
    dual_clipped as dual_clipped,
)
from plaudit.losses.policy import (
    kl_penalised as kl_penalised,
)
from plaudit.losses.policy import (
    kl_triggered as kl_triggered,
)
from plaudit.losses.policy import (
    online_dpo as online_dpo,
)
from plaudit.losses.policy import (
    online_ipo as online_ipo,
)
from plaudit.losses.policy import (
    p3o_joint as p3o_joint,
)
from plaudit.losses.policy import (
    p3o_separate as p3o_separate,
)
from plaudit.losses.policy import (
    policy_gradient as policy_gradient,
)
from plaudit.losses.policy import (
    rolled_back as rolled_back,
)
from plaudit.losses.policy import (
    unclipped as unclipped,
)
from plaudit.losses.preference import (
    SortedPartners as SortedPartners,
)
from plaudit.losses.preference import (
    aot as aot,
)
from plaudit.losses.preference import (
    aot_unpaired as aot_unpaired,
)
from plaudit.losses.preference import (
    apo_down as apo_down,
)
from plaudit.losses.preference import (
    apo_zero as apo_zero,
)
from plaudit.losses.preference import (
    bco_pair as bco_pair,
)
from plaudit.losses.preference import (
    cdpo as cdpo,
)
from plaudit.losses.preference import (
    discopop as discopop,
)
from plaudit.losses.preference import (
    dpo as dpo,
)
from plaudit.losses.preference import (
    exo as exo,
)
from plaudit.losses.preference import (
    gap as gap,
)
from plaudit.losses.preference import (
    hinge as hinge,
)
from plaudit.losses.preference import (
    ipo as ipo,
)
from plaudit.losses.preference import (
    match_sorted as match_sorted,
)
from plaudit.losses.preference import (
    nca as nca,
)
from plaudit.losses.preference import (
    odds_ratio as odds_ratio,
)
from plaudit.losses.preference import (
    robust as robust,
)
from plaudit.losses.preference import (
    simpo as simpo,
)
from plaudit.losses.preference import (
    sppo as sppo,
)
from plaudit.losses.preference_inputs import (
    CompletionLogps as CompletionLogps,
)
from plaudit.losses.preference_inputs import (
    alpha_divergence_link as alpha_divergence_link,
)
from plaudit.losses.preference_inputs import (
    completion_logps as completion_logps,
)
from plaudit.losses.preference_inputs import (
    forward_kl_link as forward_kl_link,
)
from plaudit.losses.preference_inputs import (
    jensen_shannon_link as jensen_shannon_link,
)
from plaudit.losses.preference_inputs import (
    length_desensitised_logps as length_desensitised_logps,
)
from plaudit.losses.preference_inputs import (
    mean_logps as mean_logps,
)
from plaudit.losses.preference_inputs import (
    no_reference_link as no_reference_link,
)
from plaudit.losses.preference_inputs import (
    reverse_kl_link as reverse_kl_link,
)
from plaudit.losses.preference_inputs import (
    sum_logps as sum_logps,
)
from plaudit.losses.preference_inputs import (
    with_dpop_penalty as with_dpop_penalty,
)
from plaudit.losses.preference_inputs import (
    with_length_penalty as with_length_penalty,
)
from plaudit.losses.preference_inputs import (
    wpo_weight as wpo_weight,
)
from plaudit.losses.ratio import (
    completion_log_ratio as completion_log_ratio,
)
from plaudit.losses.ratio import (
    log_ratio as log_ratio,
)
from plaudit.losses.ratio import (
    sequence_log_ratio as sequence_log_ratio,
)
from plaudit.losses.ratio import (
    sequence_token_log_ratio as sequence_token_log_ratio,
)
from plaudit.losses.ratio import (
    truncated_importance_weight as truncated_importance_weight,
)
from plaudit.losses.reduce import (
    fixed_length as fixed_length,
)
from plaudit.losses.reduce import (
    sequence_mean as sequence_mean,
)
from plaudit.losses.reduce import (
    token_mean as token_mean,
)
from plaudit.losses.reward import (
    binary as binary,
)
from plaudit.losses.reward import (
    bradley_terry as bradley_terry,
)
from plaudit.losses.reward import (
    centring as centring,
)
from plaudit.losses.reward import (
    davidson as davidson,
)
from plaudit.losses.reward import (
    gaussian_rating_nll as gaussian_rating_nll,
)
from plaudit.losses.reward import (
    group_choice_nll as group_choice_nll,
)
from plaudit.losses.reward import (
    k_wise as k_wise,
)
from plaudit.losses.reward import (
    llama_margin as llama_margin,
)
from plaudit.losses.reward import (
    plackett_luce as plackett_luce,
)
from plaudit.losses.reward import (
    process_supervision as process_supervision,
)
from plaudit.losses.reward import (
    rao_kupper as rao_kupper,
)
from plaudit.losses.reward import (
    regression as regression,
)
from plaudit.losses.reward import (
    win_tie_lose as win_tie_lose,
)
from plaudit.losses.supervised import (
    forward_kl as forward_kl,
)
from plaudit.losses.supervised import (
    jensen_shannon as jensen_shannon,
)
from plaudit.losses.supervised import (
    negative_log_likelihood as negative_log_likelihood,
)
from plaudit.losses.supervised import (
    reverse_kl as reverse_kl,
)
from plaudit.losses.trust import (
    clip_fraction as clip_fraction,
)
from plaudit.losses.trust import (
    clipped_high as clipped_high,
)
from plaudit.losses.trust import (
    clipped_low as clipped_low,
)
from plaudit.losses.trust import (
    kl_below as kl_below,
)
from plaudit.losses.trust import (
    ratio_within as ratio_within,
)
from plaudit.losses.trust import (
    recently_sampled as recently_sampled,
)
from plaudit.losses.trust import (
    trusted_completions as trusted_completions,
)
from plaudit.losses.trust import (
    unclipped_tokens as unclipped_tokens,
)
from plaudit.losses.unpaired import bco as bco
from plaudit.losses.unpaired import kto as kto
from plaudit.losses.value import (
    clipped_squared_error as clipped_squared_error,
)
from plaudit.losses.value import (
    explained_variance as explained_variance,
)
from plaudit.losses.value import (
    squared_error as squared_error,
)
