"""Annotator clusters that depend on attributes of the annotators, in HPGM's sampler.

The cluster of annotator n follows from one of J attributes, or from none. With v_nj the value of attribute j:

    g_n ~ η                                    0: from none; j: from attribute j
    z_n ~ Ω if g_n = 0 or v_nj is missing, else B_{j, v_nj}
    B_jv ~ Dir(κ Ω),   η ~ Dir(8, 1, …, 1),   κ ~ Gamma(1, 0.2)

so that P(z_n = l | v_n) = η_0 Ω_l + Σ_j η_j B_{j, v_nj, l}. If an attribute explains nothing, its B_jv are
all about Ω.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.numerics import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dissensus.labels.annotations import Annotations
    from dissensus.labels.attributes import Attribute

NO_ATTRIBUTE_PRIOR = 8.0  # Dirichlet parameter of η_0; those of the attributes are 1
KAPPA_PRIOR = 1.0, 0.2  # shape and rate of κ


@dataclass(frozen=True, eq=False)
class AttributeCells:
    """Values of the attributes of annotators: rows of the table B (values, L)."""

    cell: NDArray[np.intp]  # (N, J): row of B_{j, v_nj}; −1 if missing
    n_values: int  # of all attributes together

    @classmethod
    def of(cls, annotations: Annotations, attributes: Sequence[Attribute]) -> Self:
        """Number the values of all attributes one after the other."""
        from dissensus.labels.attributes import attribute_codes

        codes = attribute_codes(annotations, attributes)
        first = np.cumsum([0, *(len(attribute.values) for attribute in attributes)])
        return cls(np.where(codes >= 0, codes + first[:-1], -1), int(first[-1]))


def eta_prior(J: int) -> Array:
    """Return (1 + J,) the parameters of η's prior."""
    return np.append(NO_ATTRIBUTE_PRIOR, np.ones(J))


def annotator_prior(omega: Array, eta: Array, values: Array, cell: NDArray[np.intp]) -> Array:
    """Return (N, L) η_0 Ω_l + Σ_j η_j B_{j, v_nj, l}; a missing value counts as Ω."""
    by_cell = np.vstack([values, omega])  # row −1 is Ω
    return np.asarray(eta[0] * omega + np.einsum("j,njl->nl", eta[1:], by_cell[cell]))
