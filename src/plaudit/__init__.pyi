"""The public index of plaudit: each name, and the module that it lives in; ``__init__.py`` reads it."""

from plaudit import advantages as advantages
from plaudit import losses as losses
from plaudit.advantages.baseline import updated_running_mean as updated_running_mean
from plaudit.advantages.group import nonzero_std_groups as nonzero_std_groups
from plaudit.advantages.group import pass_rate as pass_rate
from plaudit.advantages.temporal import last_value as last_value
from plaudit.api import (
    PipelineResult as PipelineResult,
)
from plaudit.api import (
    Table as Table,
)
from plaudit.api import (
    TrainingResult as TrainingResult,
)
from plaudit.api import (
    evaluate as evaluate,
)
from plaudit.api import (
    run as run,
)
from plaudit.api import (
    train as train,
)
from plaudit.data.judging import Judge as Judge
from plaudit.data.judging import Task as Task
from plaudit.data.judging import Verdict as Verdict
from plaudit.data.read import read_records as read_records
from plaudit.data.records import (
    Comparison as Comparison,
)
from plaudit.data.records import (
    Demonstration as Demonstration,
)
from plaudit.data.records import (
    Message as Message,
)
from plaudit.data.records import (
    Part as Part,
)
from plaudit.data.records import (
    Prompt as Prompt,
)
from plaudit.data.records import (
    Ranking as Ranking,
)
from plaudit.data.records import (
    Rating as Rating,
)
from plaudit.data.records import (
    Record as Record,
)
from plaudit.data.records import (
    Steps as Steps,
)
from plaudit.data.records import (
    Text as Text,
)
from plaudit.data.write import write_records as write_records
from plaudit.engine.distributed import Ranks as Ranks
from plaudit.engine.loop import TrainingJob as TrainingJob
from plaudit.engine.metrics import Metric as Metric
from plaudit.engine.settings import (
    KeepSettings as KeepSettings,
)
from plaudit.engine.settings import (
    MemorySettings as MemorySettings,
)
from plaudit.engine.settings import (
    OptimizerSettings as OptimizerSettings,
)
from plaudit.engine.settings import (
    SafetySettings as SafetySettings,
)
from plaudit.engine.sinks.base import Sample as Sample
from plaudit.engine.sinks.base import Sink as Sink
from plaudit.engine.sinks.base import Summary as Summary
from plaudit.engine.stateful import Stateful as Stateful
from plaudit.engine.step import (
    ObjectiveResult as ObjectiveResult,
)
from plaudit.engine.step import (
    StepCheck as StepCheck,
)
from plaudit.engine.step import (
    Stepper as Stepper,
)
from plaudit.engine.step import (
    take_step as take_step,
)
from plaudit.engine.step_report import StepReport as StepReport
from plaudit.errors import UserError as UserError
from plaudit.evaluation.policies.evaluate import (
    EvaluationSettings as EvaluationSettings,
)
from plaudit.evaluation.policies.evaluate import (
    Scorers as Scorers,
)
from plaudit.evaluation.policies.evaluate import (
    evaluate_policies as evaluate_policies,
)
from plaudit.evaluation.policies.judge import PairJudge as PairJudge
from plaudit.evaluation.policies.judge import load_judge as load_judge
from plaudit.evaluation.policies.result import PolicyEvaluation as PolicyEvaluation
from plaudit.evaluation.reward_models.evaluate import (
    RewardEvaluationData as RewardEvaluationData,
)
from plaudit.evaluation.reward_models.evaluate import (
    evaluate_reward as evaluate_reward,
)
from plaudit.evaluation.reward_models.result import (
    Estimate as Estimate,
)
from plaudit.evaluation.reward_models.result import (
    RewardEvaluation as RewardEvaluation,
)
from plaudit.evaluation.stats.bootstrap import Resampling as Resampling
from plaudit.losses.preference_inputs import CompletionLogps as CompletionLogps
from plaudit.losses.trust import (
    clip_fraction as clip_fraction,
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
from plaudit.methods.config import (
    ContextConfig as ContextConfig,
)
from plaudit.methods.config import (
    ControlConfig as ControlConfig,
)
from plaudit.methods.config import (
    DistilConfig as DistilConfig,
)
from plaudit.methods.config import (
    RunConfig as RunConfig,
)
from plaudit.methods.config import (
    SampleSettings as SampleSettings,
)
from plaudit.methods.iterative.config import LoopConfig as LoopConfig
from plaudit.methods.iterative.config import RlhfConfig as RlhfConfig
from plaudit.methods.policy.config import PolicyConfig as PolicyConfig
from plaudit.methods.policy.row import PolicyRow as PolicyRow
from plaudit.methods.policy.run import policy as policy
from plaudit.methods.preference.algorithms import (
    aot as aot,
)
from plaudit.methods.preference.algorithms import (
    aot_unpaired as aot_unpaired,
)
from plaudit.methods.preference.algorithms import (
    apo_down as apo_down,
)
from plaudit.methods.preference.algorithms import (
    apo_zero as apo_zero,
)
from plaudit.methods.preference.algorithms import (
    apo_zero_unpaired as apo_zero_unpaired,
)
from plaudit.methods.preference.algorithms import (
    bco as bco,
)
from plaudit.methods.preference.algorithms import (
    bco_pair as bco_pair,
)
from plaudit.methods.preference.algorithms import (
    cdpo as cdpo,
)
from plaudit.methods.preference.algorithms import (
    cpo as cpo,
)
from plaudit.methods.preference.algorithms import (
    discopop as discopop,
)
from plaudit.methods.preference.algorithms import (
    dpo as dpo,
)
from plaudit.methods.preference.algorithms import (
    dpo_norm as dpo_norm,
)
from plaudit.methods.preference.algorithms import (
    dpop as dpop,
)
from plaudit.methods.preference.algorithms import (
    exo as exo,
)
from plaudit.methods.preference.algorithms import (
    f_dpo as f_dpo,
)
from plaudit.methods.preference.algorithms import (
    hinge as hinge,
)
from plaudit.methods.preference.algorithms import (
    ipo as ipo,
)
from plaudit.methods.preference.algorithms import (
    ipo_mean as ipo_mean,
)
from plaudit.methods.preference.algorithms import (
    kto as kto,
)
from plaudit.methods.preference.algorithms import (
    ld_dpo as ld_dpo,
)
from plaudit.methods.preference.algorithms import (
    mpo as mpo,
)
from plaudit.methods.preference.algorithms import (
    nca as nca,
)
from plaudit.methods.preference.algorithms import (
    orpo as orpo,
)
from plaudit.methods.preference.algorithms import (
    r_dpo as r_dpo,
)
from plaudit.methods.preference.algorithms import (
    robust_dpo as robust_dpo,
)
from plaudit.methods.preference.algorithms import (
    sdpo as sdpo,
)
from plaudit.methods.preference.algorithms import (
    simpo as simpo,
)
from plaudit.methods.preference.algorithms import (
    slic as slic,
)
from plaudit.methods.preference.algorithms import (
    sppo as sppo,
)
from plaudit.methods.preference.algorithms import (
    tr_dpo as tr_dpo,
)
from plaudit.methods.preference.algorithms import (
    wpo as wpo,
)
from plaudit.methods.preference.config import (
    PreferenceConfig as PreferenceConfig,
)
from plaudit.methods.preference.config import (
    ReferenceSettings as ReferenceSettings,
)
from plaudit.methods.preference.config import (
    StageSettings as StageSettings,
)
from plaudit.methods.preference.row import (
    BatchContext as BatchContext,
)
from plaudit.methods.preference.row import (
    PreferenceAlgorithm as PreferenceAlgorithm,
)
from plaudit.methods.preference.row import (
    UnpairedAlgorithm as UnpairedAlgorithm,
)
from plaudit.methods.preference.row import (
    pair_loss as pair_loss,
)
from plaudit.methods.preference.row import (
    unpaired_loss as unpaired_loss,
)
from plaudit.methods.preference.row import (
    with_mixed_losses as with_mixed_losses,
)
from plaudit.methods.preference.run import preference as preference
from plaudit.methods.reward_model.config import RewardConfig as RewardConfig
from plaudit.methods.reward_model.run import reward as reward
from plaudit.methods.run import Run as Run
from plaudit.methods.run import open_run as open_run
from plaudit.methods.supervised.run import sft as sft
from plaudit.models.load import load_model as load_model
from plaudit.models.policy import Policy as Policy
from plaudit.models.policy import TokenScores as TokenScores
from plaudit.models.reference import (
    ModelReference as ModelReference,
)
from plaudit.models.reference import (
    NoReference as NoReference,
)
from plaudit.models.reference import (
    Reference as Reference,
)
from plaudit.models.reward_model import RewardModel as RewardModel
from plaudit.models.settings import LoraSettings as LoraSettings
from plaudit.models.shared_backbone import SharedBackbone as SharedBackbone
from plaudit.preflight.check import Check as Check
from plaudit.rewards.base import FunctionReward as FunctionReward
from plaudit.rewards.base import Reward as Reward
from plaudit.rewards.combine.aggregate import preference_disagreement as preference_disagreement
from plaudit.rewards.load import load_reward as load_reward
from plaudit.rewards.registry import resolve_reward as resolve_reward
from plaudit.rewards.shaping import overlong_filter_mask as overlong_filter_mask
from plaudit.rollouts.environment import (
    Environment as Environment,
)
from plaudit.rollouts.environment import (
    Milestone as Milestone,
)
from plaudit.rollouts.environment import (
    Milestones as Milestones,
)
from plaudit.rollouts.environment import (
    Outcome as Outcome,
)
from plaudit.rollouts.environment import (
    Turn as Turn,
)
from plaudit.rollouts.local import LocalSampler as LocalSampler
from plaudit.rollouts.sampler import (
    Answer as Answer,
)
from plaudit.rollouts.sampler import (
    Rollout as Rollout,
)
from plaudit.rollouts.sampler import (
    Sampler as Sampler,
)
from plaudit.rollouts.sampler import (
    SamplingSettings as SamplingSettings,
)
from plaudit.tensors.needs import needs as needs
from plaudit.tokens.batch import (
    Completion as Completion,
)
from plaudit.tokens.batch import (
    Example as Example,
)
from plaudit.tokens.batch import (
    TokenBatch as TokenBatch,
)
from plaudit.tokens.batch import (
    batch_of as batch_of,
)
from plaudit.tokens.encode import Encoder as Encoder
from plaudit.tokens.encode import make_encoder as make_encoder
from plaudit.tokens.microbatch import Microbatch as Microbatch

__version__: str
