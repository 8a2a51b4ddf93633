"""The one thing that pyproject.toml cannot say: how to build what is native."""

import re
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
NATIVE = HERE / "native"
VERSION = re.search(
    r'^version = "(.+)"$', (HERE / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
)[1]
C_FLAGS = ["-std=c11", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror=implicit"]
CXX_FLAGS = [
    "-std=c++17", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra",
    "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
]  # fmt: skip
LIBRARY = "argus.libargus_kernels"


def _sources(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(HERE)) for path in NATIVE.glob(pattern))


class Build(build_ext):
    """Builds the kernel library too, which is no Python module: CUDA may load it, and C++ is all it needs.

    It is linked like C, so that no libstdc++ comes into the training process.
    """

    def get_ext_filename(self, fullname: str) -> str:
        if fullname.rpartition(".")[2] == LIBRARY.rpartition(".")[2]:
            return str(Path(*fullname.split("."))) + ".so"
        return super().get_ext_filename(fullname)

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return [] if ext.name == LIBRARY else super().get_export_symbols(ext)

    def build_extension(self, ext: Extension) -> None:
        if ext.name != LIBRARY:
            super().build_extension(ext)
            return
        target = Path(self.get_ext_fullpath(ext.name))
        newest = max(Path(path).stat().st_mtime for path in [*ext.sources, *ext.depends])
        if not self.force and target.exists() and target.stat().st_mtime > newest:
            return
        objects = []
        for flags, suffix in ((C_FLAGS, ".c"), (CXX_FLAGS, ".cpp")):
            objects += self.compiler.compile(
                [path for path in ext.sources if path.endswith(suffix)],
                output_dir=str(Path(self.build_temp) / "kernels"),
                extra_postargs=flags,
                depends=ext.depends,
            )
        self.compiler.link_shared_object(
            objects,
            str(target),
            libraries=["pthread", "dl", "m"],
            extra_postargs=["-Wl,-z,defs"],
            build_temp=self.build_temp,
            target_lang="c",
        )


native = Extension(
    "argus._native",
    sources=[*_sources("*.c"), *_sources("nvtx/*.c")],
    depends=[*_sources("*.h"), *_sources("nvtx/*.h")],
    include_dirs=["native"],
    define_macros=[("Py_LIMITED_API", "0x030A0000"), ("ARGUS_VERSION", f'"{VERSION}"')],
    extra_compile_args=C_FLAGS,
    py_limited_api=True,
)
kernels = Extension(
    LIBRARY,
    sources=[
        "native/flight.c",
        "native/histogram.c",
        "native/patterns.c",
        *_sources("kernel_*.c"),
        *_sources("kernels/*.cpp"),
    ],
    depends=[*_sources("*.h"), *_sources("kernels/*.h")],
)

setup(
    ext_modules=[native, kernels],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
