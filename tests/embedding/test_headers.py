"""Each public header compiles by itself, with a stranger's warnings, and shows nothing but the standard library, libtorch
and its like."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted((ROOT / "include/adtrain").glob("*.h"))
TORCH = pathlib.Path(os.environ["TORCH"]) / "include"


def compiled(text):
    """What the compiler says of a translation unit; empty where it likes it. libtorch's modules take it a quarter of a
    minute, which ccache remembers."""
    command = [*filter(None, [shutil.which("ccache")]), os.environ["CXX"], "-std=c++20", "-c", "-Wall", "-Wextra", "-Wpedantic",
               "-Wshadow", "-Werror", "-I", ROOT / "include", "-isystem", TORCH, "-isystem", TORCH / "torch/csrc/api/include",
               "header.cpp", "-o", "header.o"]
    with tempfile.TemporaryDirectory(prefix="adtrain-headers-") as folder:
        pathlib.Path(folder, "header.cpp").write_text(text)
        return subprocess.run(command, capture_output=True, text=True, cwd=folder,
                              env=os.environ | {"CCACHE_BASEDIR": folder}).stderr


def names_defined_in(files):
    """Classes, structures and enumerations of namespace adtrain: what is defined, not what is only named."""
    definition = re.compile(r"^(?:class|struct|enum class) (\w+)(?: final)?(?: : [^;{]*)? \{", re.M)
    return {name for file in files for name in definition.findall(file.read_text())}


class Headers(unittest.TestCase):
    def test_each_compiles_by_itself(self):
        self.assertGreater(len(HEADERS), 5)
        for header in HEADERS:
            if header.name == "adtrain.h":  # nothing of its own; test_program.py compiles it
                continue
            with self.subTest(header=header.name):
                self.assertEqual(compiled(f"#include <adtrain/{header.name}>\n"), "")

    def test_a_header_that_lacks_an_include_is_found(self):
        self.assertIn("string", compiled("namespace adtrain { std::string version(); }\n"))

    def test_they_include_the_standard_library_libtorch_and_each_other(self):
        for header in HEADERS:
            for name in re.findall(r'#include [<"]([^>"]+)[>"]', header.read_text()):
                known = re.fullmatch(r"[a-z_]+|(ATen|c10|torch)/.*", name) or (ROOT / "include" / name).exists()
                self.assertTrue(known, f"{header.name} includes {name}")

    def test_adtrain_h_includes_all_of_them_and_nothing_else(self):
        lines = (ROOT / "include/adtrain/adtrain.h").read_text().splitlines()
        code = [line for line in lines if line and line != "#pragma once" and not line.startswith("//")]
        self.assertEqual(sorted(code), [f'#include "adtrain/{header.name}"' for header in HEADERS if header.name != "adtrain.h"])

    def test_no_name_is_defined_a_second_time_inside(self):
        """Both would be in one program, and the language wants one definition of a name."""
        inside = names_defined_in((ROOT / "src").glob("**/*.h"))
        self.assertIn("CheckpointStore", inside)
        public = names_defined_in(HEADERS)
        self.assertIn("DataParallel", public)
        self.assertEqual(public & inside, set())


if __name__ == "__main__":
    unittest.main(verbosity=2)
