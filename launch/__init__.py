"""A whole run: the command line, the settings, the nodes, start to end, reports.

The only part that knows Launchpad. In the order of a run:

  cli, commands  what a person types: one command a module
  settings       a run's settings: declared once, parsed, checked before any process
  nodes          the processes: learner, quantizer, replay, counter, actors, evaluator
  checkpoints    what a run resumes from
  running        start to end: processes, restarts, progress, stop
  reports        what finished runs say: curves, measures, pages
"""
