"""The package itself: installed by pip into a fresh environment, where the README's example runs; what it imports."""
import os
import pathlib
import re
import site
import sys
import unittest

import adtrain
from support import ROOT, FolderTest, run

SOURCES = ROOT / "src/python"


def readme_example():
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(found) == 1, f"expected one example in Python in README.md, found {len(found)}"
    return found[0]


def without(*packages):
    """Python that cannot import these."""
    return [sys.executable, "-c", f"import sys\nfor name in {packages!r}: sys.modules[name] = None\nexec(sys.argv[1])"]


class Package(FolderTest):
    def test_the_readmes_example_runs_where_pip_installed_the_package(self):
        """Without a network: NumPy, safetensors and the package's builder are those of the tests' environment."""
        run(sys.executable, "-m", "venv", self.folder / "venv")
        python = self.folder / "venv/bin/python"
        (packages,) = self.folder.glob("venv/lib/python*/site-packages")
        (packages / "tests.pth").write_text("\n".join(site.getsitepackages()))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        run(python, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", SOURCES, env=environment)
        self.assertEqual({path.name for path in (packages / "adtrain").glob("*")} - {"__pycache__"},
                         {path.name for path in (SOURCES / "adtrain").glob("*")} - {"__pycache__"})
        example = readme_example()
        self.assertLessEqual(len(example.splitlines()), 15)
        output = run(python, "-c", "import adtrain; print(adtrain.__file__)\n" + example, env=environment, cwd=ROOT)
        place, *episodes = output.splitlines()
        self.assertEqual(pathlib.Path(place).parent, packages / "adtrain")
        first, last = (float(episodes[i].split()[-1]) for i in (0, -1))
        self.assertGreater(last, first + 3, output)
        self.assertEqual(sorted(path.name for path in SOURCES.iterdir() if path.name != "__pycache__"),
                         ["adtrain", "pyproject.toml"], "installing left something among the sources")

    def test_acting_needs_numpy_and_safetensors_alone(self):
        program = "import adtrain; print(adtrain.load('models/darkroom').act([[4, 4]]).shape, 'torch' in sys.modules)"
        command = without("h5py", "pandas", "stable_baselines3", "yaml", "scipy")
        self.assertEqual(run(*command, program, cwd=ROOT), "(1,) False\n")

    def test_a_missing_package_is_named(self):
        def said(package, program):
            return run(*without(package), f"import adtrain\n{program}", cwd=ROOT, code=1)

        self.assertIn("histories needs the Python package h5py, which is not installed: pip install h5py",
                      said("h5py", "adtrain.Histories('x.hdf5')"))
        self.assertIn("Metrics.frame() needs the Python package pandas", said("pandas", "adtrain.Metrics({}).frame()"))
        self.assertIn("Recording histories needs the Python package stable-baselines3",
                      said("stable_baselines3", "import adtrain.callback"))

    def test_its_version_is_the_programs(self):
        version = re.search(r"project\(adtrain VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertEqual(adtrain.__version__, version)

    def test_its_page_names_all_it_offers(self):
        page = (ROOT / "docs/python.md").read_text()
        self.assertEqual([name for name in adtrain.__all__ if f"`{name}" not in page], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
