"""The losses: each name, and the module that it lives in; ``__init__.py`` reads it."""

from plaudit.losses.divergence import full_vocabulary_kl as full_vocabulary_kl, k1 as k1, k2 as k2, k3 as k3
from plaudit.losses.kl_control import (
    double_or_halve_beta as double_or_halve_beta,
    proportional_beta as proportional_beta,
)
from plaudit.losses.policy import (
    cispo as cispo,
    clipped as clipped,
    dual_clipped as dual_clipped,
    kl_penalised as kl_penalised,
    kl_triggered as kl_triggered,
    online_dpo as online_dpo,
    online_ipo as online_ipo,
    p3o_joint as p3o_joint,
    p3o_separate as p3o_separate,
    policy_gradient as policy_gradient,
    rolled_back as rolled_back,
    unclipped as unclipped,
)
from plaudit.losses.preference import (
    SortedPartners as SortedPartners,
    aot as aot,
    aot_unpaired as aot_unpaired,
    apo_down as apo_down,
    apo_zero as apo_zero,
    bco_pair as bco_pair,
    cdpo as cdpo,
    discopop as discopop,
    dpo as dpo,
    exo as exo,
    gap as gap,
    hinge as hinge,
    ipo as ipo,
    match_sorted as match_sorted,
    nca as nca,
    odds_ratio as odds_ratio,
    robust as robust,
    simpo as simpo,
    sppo as sppo,
)
from plaudit.losses.preference_inputs import (
    CompletionLogps as CompletionLogps,
    alpha_divergence_link as alpha_divergence_link,
    completion_logps as completion_logps,
    forward_kl_link as forward_kl_link,
    jensen_shannon_link as jensen_shannon_link,
    length_desensitised_logps as length_desensitised_logps,
    mean_logps as mean_logps,
    no_reference_link as no_reference_link,
    reverse_kl_link as reverse_kl_link,
    sum_logps as sum_logps,
    with_dpop_penalty as with_dpop_penalty,
    with_length_penalty as with_length_penalty,
    wpo_weight as wpo_weight,
)
from plaudit.losses.ratio import (
    completion_log_ratio as completion_log_ratio,
    log_ratio as log_ratio,
    sequence_log_ratio as sequence_log_ratio,
    sequence_token_log_ratio as sequence_token_log_ratio,
    truncated_importance_weight as truncated_importance_weight,
)
from plaudit.losses.reduce import (
    fixed_length as fixed_length,
    sequence_mean as sequence_mean,
    token_mean as token_mean,
)
from plaudit.losses.reward import (
    binary as binary,
    bradley_terry as bradley_terry,
    centring as centring,
    davidson as davidson,
    gaussian_rating_nll as gaussian_rating_nll,
    group_choice_nll as group_choice_nll,
    k_wise as k_wise,
    llama_margin as llama_margin,
    plackett_luce as plackett_luce,
    process_supervision as process_supervision,
    rao_kupper as rao_kupper,
    regression as regression,
    win_tie_lose as win_tie_lose,
)
from plaudit.losses.supervised import (
    forward_kl as forward_kl,
    jensen_shannon as jensen_shannon,
    negative_log_likelihood as negative_log_likelihood,
    reverse_kl as reverse_kl,
)
from plaudit.losses.trust import (
    clip_fraction as clip_fraction,
    clipped_high as clipped_high,
    clipped_low as clipped_low,
    kl_below as kl_below,
    ratio_within as ratio_within,
    recently_sampled as recently_sampled,
    trusted_completions as trusted_completions,
    unclipped_tokens as unclipped_tokens,
)
from plaudit.losses.unpaired import bco as bco, kto as kto
from plaudit.losses.value import (
    clipped_squared_error as clipped_squared_error,
    explained_variance as explained_variance,
    squared_error as squared_error,
)
