"""The public index of plaudit: each name, and the module that it lives in; ``__init__.py`` reads it."""

from plaudit import advantages as advantages, losses as losses
from plaudit.advantages.group import (
    nonzero_std_groups as nonzero_std_groups,
    pass_rate as pass_rate,
    updated_running_mean as updated_running_mean,
)
from plaudit.api import evaluate as evaluate, load_rows as load_rows, train as train
from plaudit.data.judging import Judge as Judge, Verdict as Verdict
from plaudit.data.read import read_records as read_records
from plaudit.data.records import (
    Comparison as Comparison,
    Demonstration as Demonstration,
    Message as Message,
    Part as Part,
    Prompt as Prompt,
    Ranking as Ranking,
    Rating as Rating,
    Record as Record,
    Steps as Steps,
    Task as Task,
    Text as Text,
)
from plaudit.data.write import write_records as write_records
from plaudit.engine.checkpoint.state import Stateful as Stateful
from plaudit.engine.distributed import Ranks as Ranks
from plaudit.engine.loop import TrainingJob as TrainingJob
from plaudit.engine.metrics import Metric as Metric
from plaudit.engine.settings import (
    KeepSettings as KeepSettings,
    MemorySettings as MemorySettings,
    OptimizerSettings as OptimizerSettings,
    SafetySettings as SafetySettings,
)
from plaudit.engine.sinks.base import Sample as Sample, Sink as Sink, Summary as Summary
from plaudit.engine.step import (
    ObjectiveResult as ObjectiveResult,
    StepCheck as StepCheck,
    Stepper as Stepper,
    take_step as take_step,
)
from plaudit.engine.step_report import StepReport as StepReport
from plaudit.errors import UserError as UserError
from plaudit.evaluation.policies.evaluate import (
    EvaluationSettings as EvaluationSettings,
    Scorers as Scorers,
    evaluate_policies as evaluate_policies,
)
from plaudit.evaluation.policies.judge import load_judge as load_judge
from plaudit.evaluation.policies.result import PolicyEvaluation as PolicyEvaluation
from plaudit.evaluation.reward_models.evaluate import (
    RewardEvaluationData as RewardEvaluationData,
    evaluate_reward as evaluate_reward,
)
from plaudit.evaluation.reward_models.result import RewardEvaluation as RewardEvaluation
from plaudit.evaluation.stats import Estimate as Estimate, Resampling as Resampling
from plaudit.losses.policy import (
    clip_fraction as clip_fraction,
    kl_below as kl_below,
    ratio_within as ratio_within,
    recently_sampled as recently_sampled,
)
from plaudit.losses.preference import CompletionLogps as CompletionLogps
from plaudit.methods.config import (
    ContextConfig as ContextConfig,
    ControlConfig as ControlConfig,
    DistilConfig as DistilConfig,
    ReferenceSettings as ReferenceSettings,
    RunConfig as RunConfig,
    SampleSettings as SampleSettings,
)
from plaudit.methods.iterative.config import LoopConfig as LoopConfig, RlhfConfig as RlhfConfig
from plaudit.methods.policy.algorithms import (
    a2c as a2c,
    cispo as cispo,
    dapo as dapo,
    dr_grpo as dr_grpo,
    grpo as grpo,
    grpo_plus as grpo_plus,
    gspo as gspo,
    ipo_md as ipo_md,
    nash_md as nash_md,
    online_dpo as online_dpo,
    online_ipo as online_ipo,
    p3o as p3o,
    ppo as ppo,
    ppo_penalty as ppo_penalty,
    ppo_ptx as ppo_ptx,
    ppo_rb as ppo_rb,
    reinforce as reinforce,
    reinforce_pp as reinforce_pp,
    remax as remax,
    rloo as rloo,
    tr_ppo as tr_ppo,
    tr_ppo_rb as tr_ppo_rb,
    trpo as trpo,
)
from plaudit.methods.policy.config import PolicyConfig as PolicyConfig
from plaudit.methods.policy.row import PolicyAlgorithm as PolicyAlgorithm
from plaudit.methods.policy.run import policy as policy
from plaudit.methods.policy.shaping import overlong_filter_mask as overlong_filter_mask
from plaudit.methods.preference.algorithms import (
    aot as aot,
    aot_unpaired as aot_unpaired,
    apo_down as apo_down,
    apo_zero as apo_zero,
    apo_zero_unpaired as apo_zero_unpaired,
    bco as bco,
    bco_pair as bco_pair,
    cdpo as cdpo,
    cpo as cpo,
    discopop as discopop,
    dpo as dpo,
    dpo_norm as dpo_norm,
    dpop as dpop,
    exo as exo,
    f_dpo as f_dpo,
    hinge as hinge,
    ipo as ipo,
    ipo_mean as ipo_mean,
    kto as kto,
    ld_dpo as ld_dpo,
    mdpo as mdpo,
    mpo as mpo,
    nca as nca,
    orpo as orpo,
    pl_dpo as pl_dpo,
    r_dpo as r_dpo,
    robust_dpo as robust_dpo,
    rrhf as rrhf,
    sdpo as sdpo,
    simpo as simpo,
    slic as slic,
    sppo as sppo,
    tr_dpo as tr_dpo,
    wpo as wpo,
)
from plaudit.methods.preference.config import (
    PreferenceConfig as PreferenceConfig,
    StageSettings as StageSettings,
)
from plaudit.methods.preference.row import (
    BatchContext as BatchContext,
    PreferenceAlgorithm as PreferenceAlgorithm,
    UnpairedAlgorithm as UnpairedAlgorithm,
    pair_loss as pair_loss,
    unpaired_loss as unpaired_loss,
    with_mixed_losses as with_mixed_losses,
)
from plaudit.methods.preference.run import preference as preference
from plaudit.methods.reward_model.config import RewardConfig as RewardConfig
from plaudit.methods.reward_model.run import reward as reward
from plaudit.methods.run import Run as Run, open_run as open_run
from plaudit.methods.supervised.run import sft as sft
from plaudit.models.load import load_model as load_model
from plaudit.models.policy import (
    ModelReference as ModelReference,
    NoReference as NoReference,
    Policy as Policy,
    Reference as Reference,
    TokenScores as TokenScores,
)
from plaudit.models.reward_model import RewardModel as RewardModel
from plaudit.models.settings import LoraSettings as LoraSettings, SamplingSettings as SamplingSettings
from plaudit.preflight.check import Check as Check
from plaudit.results import (
    Charts as Charts,
    LanguageModel as LanguageModel,
    Table as Table,
    TrainingResult as TrainingResult,
    load as load,
    score as score,
)
from plaudit.rewards.base import (
    FunctionReward as FunctionReward,
    Reward as Reward,
    RewardTraits as RewardTraits,
)
from plaudit.rewards.combine.aggregate import preference_disagreement as preference_disagreement
from plaudit.rewards.load import load_reward as load_reward
from plaudit.rewards.registry import resolve_reward as resolve_reward
from plaudit.rollouts.environment import (
    Environment as Environment,
    Milestone as Milestone,
    Milestones as Milestones,
    Outcome as Outcome,
    Turn as Turn,
)
from plaudit.rollouts.local import LocalSampler as LocalSampler
from plaudit.rollouts.sampler import Answer as Answer, Rollout as Rollout, Sampler as Sampler
from plaudit.runs.api import PipelineResult as PipelineResult, run as run
from plaudit.tensors.needs import needs as needs
from plaudit.tokens.batch import (
    Completion as Completion,
    Example as Example,
    Extra as Extra,
    TokenBatch as TokenBatch,
    batch_of as batch_of,
)
from plaudit.tokens.encode import Encoder as Encoder, make_encoder as make_encoder
from plaudit.tokens.microbatch import Microbatch as Microbatch

__version__: str
