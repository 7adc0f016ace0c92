"""Builds the distribution `acme-quant` and its C extension.

The policy runtime needs NumPy alone; `pip install acme-quant[training]` adds the
whole training stack in the versions of requirements.txt.
"""

from __future__ import annotations

import pathlib

import setuptools

HERE = pathlib.Path(__file__).parent
KERNELS = "acme_quant/kernels"
OWN = ["agents", "agents.*", "launch", "launch.*"]


def pinned_requirements() -> list[str]:
    """Returns the training stack's pins, one requirement an entry."""
    lines = (HERE / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


# No FMA where the reference has none: the int8 path must give the same bits on
# every CPU, so the compiler may not contract a*b+c by itself.
kernels = setuptools.Extension(
    "acme_quant.kernels._kernels",
    sources=sorted(str(p.relative_to(HERE)) for p in (HERE / KERNELS).glob("*.c")),
    depends=sorted(str(p.relative_to(HERE)) for p in (HERE / KERNELS).glob("*.h")),
    extra_compile_args=[
        "-O3",
        "-std=c11",
        "-ffp-contract=off",
        "-fno-math-errno",
        # Sums of codes that no quantizer makes, but a stranger may send, wrap.
        "-fwrapv",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        # Vectors are passed only within a file.
        "-Wno-psabi",
        "-Wno-missing-field-initializers",
    ],
)

setuptools.setup(
    name="acme-quant",
    version="0.1.0",
    description="Quantized actor-learner reinforcement learning on Acme.",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.9",
    install_requires=["numpy>=1.21"],
    extras_require={"training": pinned_requirements()},
    packages=[
        *setuptools.find_packages(include=["acme_quant", "acme_quant.*"]),
        *(f"acme_quant.{name}" for name in setuptools.find_packages(include=OWN)),
    ],
    package_data={
        "acme_quant": ["py.typed"],
        "acme_quant.agents.presets": ["*.flags"],
        # The texts that exported policies are made of.
        "acme_quant.export": ["*.c"],
        "acme_quant.kernels": ["*.c", "*.h", "*.pyi"],
    },
    # `agents` and `launch` are too common as installed top-level names.
    package_dir={"acme_quant.agents": "agents", "acme_quant.launch": "launch"},
    ext_modules=[kernels],
    entry_points={"console_scripts": ["acme-quant = acme_quant.launch.cli:main"]},
)
