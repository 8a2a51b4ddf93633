"""What a drill's alerts must be, and how those that fired compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Claim:
    """An alert with some of its labels; without a label it stands for any value of it."""

    alert: str
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, alert: str, **labels: object) -> Claim:
        """A claim about these labels."""
        return cls(alert, tuple((name, str(value)) for name, value in labels.items()))

    def matches(self, alert: Labels) -> bool:
        """Whether an alert (its labels, ``alertname`` among them) is meant."""
        return alert.get("alertname") == self.alert and all(alert.get(k) == v for k, v in self.labels)

    def __str__(self) -> str:
        return f"{self.alert}{{{', '.join(f'{k}={v}' for k, v in self.labels)}}}"


SYMPTOMS = (Claim("ArgusIterationRegression"), Claim("ArgusIterationJitter"))
"""What may be said of a run that somebody slows down: true, and inhibited by its cause."""


@dataclass(frozen=True)
class Truth:
    """What happened, as alerts.

    Attributes:
        must: Each of them fires.
        may: True as well, but not necessary.
        any_of: At least one of them fires, if there are any.
    """

    must: tuple[Claim, ...] = ()
    may: tuple[Claim, ...] = ()
    any_of: tuple[Claim, ...] = ()

    def missing(self, fired: Iterable[Labels]) -> list[Claim]:
        """What should have fired and did not."""
        alerts = list(fired)
        missing = [claim for claim in self.must if not any(claim.matches(alert) for alert in alerts)]
        if not any(claim.matches(alert) for claim in self.any_of for alert in alerts):
            missing += self.any_of[:1]
        return missing

    def false(self, fired: Iterable[Labels]) -> list[Labels]:
        """What fired and is not true."""
        return [
            a for a in fired if not any(claim.matches(a) for claim in (*self.must, *self.may, *self.any_of))
        ]


@dataclass
class Judgement:
    """A drill's result; empty lists: right."""

    missing: list[Claim] = field(default_factory=list)
    false: list[Labels] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return not self.missing and not self.false

    def __str__(self) -> str:
        if self.right:
            return "right"
        parts = [f"missing {claim}" for claim in self.missing]
        return "; ".join(parts + [f"false {dict(alert)}" for alert in self.false])


def judge(truth: Truth, fired: Iterable[Labels]) -> Judgement:
    """Compare the labels of everything that fired with the truth."""
    alerts = list(fired)
    return Judgement(truth.missing(alerts), truth.false(alerts))
