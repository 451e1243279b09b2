"""Public names for type checkers; ``__init__.py`` imports them when they are asked for."""

from fedrank.api.estimators import RankingEstimator as RankingEstimator
from fedrank.api.estimators import SiloClassifier as SiloClassifier
from fedrank.api.result import Result as Result
from fedrank.api.training import load as load
from fedrank.api.training import protocols as protocols
from fedrank.api.training import resume as resume
from fedrank.api.training import run as run
from fedrank.api.training import train as train
from fedrank.core.errors import FedrankError as FedrankError
from fedrank.core.frame import Frame as Frame
from fedrank.core.ledger import Ledger as Ledger
from fedrank.core.messages import field as field
from fedrank.core.messages import message as message
from fedrank.core.privacy_report import PrivacyReport as PrivacyReport
from fedrank.core.protocol import Exchange as Exchange
from fedrank.core.protocol import Party as Party
from fedrank.core.protocol import Protocol as Protocol
from fedrank.data.sources import load as load_data  # noqa: F401
from fedrank.engine.model import Model as Model
from fedrank.engine.progress import Listener as Listener
from fedrank.engine.task import Task as Task
from fedrank.ranking.clicks.cascade import CascadeUser as CascadeUser
from fedrank.ranking.data.queries import QuerySet as Queries  # noqa: F401
from fedrank.ranking.foltr_es import FoltrES as FoltrES
from fedrank.ranking.foltr_pdgd import FoltrPDGD as FoltrPDGD
from fedrank.ranking.logs.learn import learn_from_log as learn_from_log
from fedrank.ranking.rankers.base import Ranker as Ranker
from fedrank.ranking.rankers.own import FunctionRanker as FunctionRanker

__version__: str
