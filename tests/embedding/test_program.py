"""The program of docs/embedding.md, built outside the tree against an installed adtrain that was moved, and run on two CPU
ranks under every launcher of one host."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/embedding.md").read_text()
CMAKE, MPIRUN, TORCHRUN = (os.environ[name] for name in ("CMAKE", "MPIRUN", "TORCHRUN"))


def block(language):
    """The only code of the page in that language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(found) == 1, f"expected one ```{language} in docs/embedding.md, found {len(found)}"
    return found[0]


def run(*command, code=0, **more):
    """Standard output and error of a command, which must end with `code`."""
    finished = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=200, **more)
    assert finished.returncode == code, f"{command} ended with {finished.returncode}:\n{finished.stdout}"
    return finished.stdout


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="adtrain-embedding-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run(CMAKE, "--install", os.environ["BUILD"], "--prefix", cls.folder / "first")
        cls.prefix = (cls.folder / "first").rename(cls.folder / "moved")
        project = cls.folder / "project"
        project.mkdir()
        (project / "train.cpp").write_text(block("cpp"))
        (project / "CMakeLists.txt").write_text(block("cmake"))
        run(CMAKE, "-B", project / "build", "-S", project, f"-DCMAKE_PREFIX_PATH={cls.prefix}",
            f"-DCMAKE_CXX_COMPILER={os.environ['CXX']}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
            f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache') or ''}")
        # The folder is another one each time, and must not tell the same program apart.
        run(CMAKE, "--build", project / "build", env=os.environ | {"CCACHE_BASEDIR": str(cls.folder)})
        cls.program = project / "build/train"

    def train(self, name, *launcher, steps="0 to 200", ranks=2, over="Gloo"):
        """The parameters after the last step, as they lie in the file."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        output = run(*launcher, self.program, cwd=folder, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
        self.assertRegex(output, rf"steps {steps} on {ranks} ranks over {over}: loss 0\.0\d")
        return (folder / "checkpoints/step-200/model.safetensors").read_bytes()

    def test_the_program_is_short(self):
        self.assertLessEqual(len(block("cpp").splitlines()), 60)

    def test_trains_alike_under_every_launcher_and_resumes_exactly(self):
        torchrun = [TORCHRUN, "--standalone", "--no-python", "--nproc-per-node", 2]
        whole = self.train("torchrun", *torchrun)
        shutil.rmtree(self.folder / "torchrun/checkpoints/step-200")  # as if it had been killed before
        self.assertEqual(self.train("torchrun", *torchrun, steps="150 to 200"), whole)
        mpirun = [MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", 2]
        self.assertEqual(self.train("mpirun", *mpirun, over="MPI"), whole)
        launch = [self.prefix / "bin/adtrain", "launch", "--nproc", 2, "--logs", "logs", "--program"]
        self.assertEqual(self.train("launch", *launch), whole)
        self.train("alone", ranks=1, over="none")

    def test_installed_programs_run_where_they_were_moved_to(self):
        adtrain = self.prefix / "bin/adtrain"
        version = re.search(r"project\(adtrain VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertEqual(run(adtrain, "--version"), f"adtrain {version}\n")
        search = run("readelf", "-d", adtrain)
        self.assertIn("$ORIGIN", search)
        self.assertNotIn(str(self.folder / "first"), search)
        self.assertNotIn(os.environ["BUILD"], search)
        self.assertIn("a part of adtrain", run(self.prefix / "bin/adtrain-history-reader", code=2))
        self.assertIn("--program: found nowhere", run(adtrain, "launch", "--program", "nowhere", code=2))
        run(adtrain, "validate", self.prefix / "share/adtrain/configs/quickstart.yaml")

    def test_the_package_says_what_is_wrong_with_a_libtorch(self):
        project = self.folder / "wrong"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(block("cmake"))
        (project / "train.cpp").write_text("int main() {}\n")
        torch = project / "torch"
        (torch / "share/cmake/Torch").mkdir(parents=True)
        (torch / "share/cmake/Torch/TorchConfig.cmake").touch()
        (torch / "include/torch/headeronly").mkdir(parents=True)
        (torch / "include/torch/headeronly/version.h").write_text("#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 3\n")
        output = run(CMAKE, "-B", project / "build", "-S", project, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                     f"-DTorch_DIR={torch}/share/cmake/Torch", code=1)
        self.assertIn("libtorch 1.3; adtrain was built with", re.sub(r"\s+", " ", output))


if __name__ == "__main__":
    unittest.main(verbosity=2)
