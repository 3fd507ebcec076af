"""A spec of stages up to a training."""


def chain(
    t: str = "num_steps: 1",
    *,
    p: str = "",
    c: str = "",
    manifest: str = "m.csv",
    after: str = "[c, m]",
    resources: str = "",
) -> str:
    """Return a spec of all stages up to a training with these settings."""
    return f"""\
name: a
cluster: local
stages:
  m: {{shell: make}}
  p:
    run: preprocess
    after: m
    config: {{manifest: "${{m.output_dir}}/{manifest}", processor: "${{m.output_dir}}/p", {p}}}
  c: {{run: consolidate, after: p, config: {{{c}}}}}
  t:
    run: train
    after: {after}
    resources: {{{resources}}}
    config: {{device: cpu, strategy: single, {t}}}
"""


PACKED = "batching: {kind: packed, max_tokens: 512}"
