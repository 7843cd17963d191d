"""Studies: plans of trials, run by one runner on one store, and their results.

The way of a comparison through this folder, module by module:

1. ``api`` takes graphs and options. ``plan_from_settings`` fills in defaults and lists the trials of the ``plan``.
   A search can ask for a ``forecast`` of its time.
2. ``runner`` groups the trials into ``fleets`` and gives these to the workers of an engine, ``local_engine`` or
   ``ray_engine``. A ``worker`` trains a fleet on its ``folds``. After a failure it goes on from one of its
   ``checkpoints``. ``halving`` drops trials on the way, and ``progress`` shows it.
3. ``store`` keeps what is trained, with the tables of ``schema`` and the ``compression`` of curves. ``maintenance`` and
   ``export`` are for finished stores.
4. ``reading`` makes a ``result`` from a store: a ``score`` of each norm, by the ``selection`` of the ``protocol``, with
   the paper's number (``paper_numbers``).
5. ``significance`` tests differences, ``verdict`` says what follows, ``notes`` what to doubt, and ``layout``,
   ``render`` and ``plots`` show it.

Several of them put trials and scores in groups, with the function in ``grouping``.
"""

from graphnorm.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)
