"""What is said under tables and figures."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from graphnorm.paper.remarks import about_dropout


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (["gin", "molhiv-gin"], ()),
        (
            ["gin", "molecular-gcn"],
            ("molecular-gcn: dropout acts after every convolution, in the authors' code on the scores alone.",),
        ),
        (
            ["molecular-gcn", "molecular-gin"],
            (
                "molecular-gin and molecular-gcn: dropout acts after every convolution, in the authors' code on the "
                "scores alone.",
            ),
        ),
    ],
)
def test_models_that_are_not_quite_the_authors(models: list[str], said: tuple[str, ...]) -> None:
    material = SimpleNamespace(studies=[SimpleNamespace(model=model) for model in models])
    assert about_dropout(material) == said  # type: ignore[arg-type]
