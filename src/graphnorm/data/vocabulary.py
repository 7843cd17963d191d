"""What the categorical features of molecules mean: OGB's nine atom and three bond features.

A feature's value is its index in the list; anything not in an open list is its last entry, ``misc``.
"""

from __future__ import annotations

__all__ = ["ATOM_FEATURES", "BOND_FEATURES", "MISC", "cardinalities"]

MISC = "misc"
Vocabulary = dict[str, tuple[int | bool | str, ...]]

ATOM_FEATURES: Vocabulary = {
    "atomic number": (*range(1, 119), MISC),
    "chirality": ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER", MISC),
    "degree": (*range(11), MISC),
    "formal charge": (*range(-5, 6), MISC),
    "hydrogens": (*range(9), MISC),
    "radical electrons": (*range(5), MISC),
    "hybridization": ("SP", "SP2", "SP3", "SP3D", "SP3D2", MISC),
    "aromatic": (False, True),
    "in a ring": (False, True),
}
BOND_FEATURES: Vocabulary = {
    "type": ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", MISC),
    "stereo": ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY"),
    "conjugated": (False, True),
}


def cardinalities(vocabulary: Vocabulary) -> tuple[int, ...]:
    """How many values each feature has.

    >>> cardinalities(BOND_FEATURES)
    (5, 6, 2)
    """
    return tuple(len(values) for values in vocabulary.values())
