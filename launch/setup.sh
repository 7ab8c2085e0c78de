#!/usr/bin/env bash
# Installs what building and running adtrain needs: system packages (as root or by sudo), and in the ignored folder
# .deps/venv whatever is missing of libtorch and a CUDA compiler. Neither a GPU nor a driver is needed.
# A second call finds everything in place and changes nothing. docs/installing.md: without root, without a network.
#   bash launch/setup.sh                        what the program needs
#   bash launch/setup.sh --with-tests           and what the tests need besides
#   bash launch/setup.sh --no-system-packages   only what is installed into .deps/venv; you install the others
#   bash launch/setup.sh --list [--with-tests]  names the packages, and installs nothing
set -euo pipefail
cd "$(dirname "$0")/.."
source launch/steps.sh

readonly venv=$PWD/.deps/venv
readonly constraints=$PWD/launch/python-constraints.txt # versions of the packages that pip installs as dependencies
system_packages=(
  build-essential cmake ninja-build ccache pkg-config ca-certificates python3 python3-venv
  libopenmpi-dev openmpi-bin libgloo-dev libyaml-cpp-dev libcxxopts-dev nlohmann-json3-dev
  libhdf5-dev zlib1g-dev libcairo2-dev
)
readonly test_system_packages=(
  git libgtest-dev libgmock-dev
  slurm-wlm munge iproute2 # the tests of the launchers start their own daemons and hosts
)
readonly torch=torch==2.11.0
# The compiler and what libtorch's CMake package requires; torch installs the other libraries into the same folder.
readonly toolkit_parts=nvcc,crt,cccl,nvvm,profiler,nvml,nvtx,cudart
readonly toolkit_version=13.0.2
readonly nvml_header=nvidia-nvml-dev==13.0.87 # alone, for a toolkit that lacks it
readonly cudnn_frontend=nvidia-cudnn-frontend==1.32.0 # headers around cuDNN, which comes with libtorch
readonly cutlass=nvidia-cutlass==4.2.0.0 # headers: products with GELU in their epilogue
readonly test_packages=(
  numpy==2.4.6 h5py==3.16.0 safetensors==0.8.0 tensorboard==2.21.0 accelerate==1.15.0 pandas==3.1.1
  stable-baselines3==2.9.2 flit_core==4.2.0 mujoco==4.0.0 imageio==2.38.1 minari==0.5.4
  bitsandbytes==0.50.2
)

with_tests='' list='' bring_system_packages=yes
for option; do
  case $option in
    --with-tests) with_tests=yes ;;
    --no-system-packages) bring_system_packages='' ;;
    --list) list=yes ;;
    *) give_up "'$option' is not known here; the options are --with-tests, --no-system-packages and --list." ;;
  esac
done
[[ -z $with_tests ]] || system_packages+=("${test_system_packages[@]}")

as_root() { if ((EUID == 0)); then "$@"; else sudo "$@"; fi; }

missing_system_packages() {
  local package
  for package in "${system_packages[@]}"; do
    dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

install_system_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "  System packages: this is neither Debian nor Ubuntu; make sure of ${system_packages[*]} \
in your system's names (docs/installing.md)"
    return
  fi
  local missing
  mapfile -t missing < <(missing_system_packages)
  if ((${#missing[@]} == 0)); then
    echo "  System packages: all ${#system_packages[@]} are there"
    return
  fi
  # sudo asks for the password, if any, before the output goes to a log
  ((EUID == 0)) || sudo --validate || give_up "System packages are missing, and you are not root and sudo does not help. \
Have them installed with
  apt-get install ${missing[*]}
and call again; docs/installing.md says how to do without."
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get --yes -o DPkg::Lock::Timeout=300)
  step apt-update "Refreshing the list of system packages" as_root "${apt[@]}" update
  local unknown
  unknown=$(comm -23 <(printf '%s\n' "${missing[@]}" | sort) <(apt-cache --generate pkgnames | sort))
  [[ -z $unknown ]] || give_up "The package sources of this machine do not offer: ${unknown//$'\n'/ }.
Debian 12 has them in 'main', Ubuntu 24.04 in 'main' and 'universe': enable these and call again."
  step apt-install "Installing ${#missing[@]} system packages" \
    as_root "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

# The folder of TorchConfig.cmake that the configure step will use, by the same rules: as given, else the active
# Python's CUDA build, else the one in .deps/venv.
find_torch() {
  local prefix folder given=${Torch_DIR:-}:${CMAKE_PREFIX_PATH:-}
  for prefix in ${given//:/ }; do
    for folder in "$prefix" "$prefix/Torch" "$prefix/share/cmake/Torch"; do
      [[ ! -e $folder/TorchConfig.cmake ]] || { echo "$folder" && return; }
    done
  done
  python3 launch/find_torch.py || "$venv/bin/python" launch/find_torch.py 2>/dev/null
}

make_venv() { # with the system's Python, or on top of the active one where that has torch
  if [[ -x $venv/bin/python ]] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then return; fi
  rm -rf "$venv"
  if python3 launch/find_torch.py >/dev/null; then
    step venv "Making .deps/venv on top of $(command -v python3)" python3 -m venv --system-site-packages "$venv"
  else
    step venv "Making .deps/venv" /usr/bin/python3 -m venv "$venv"
  fi
}

pip_install() { # name what packages...: into .deps/venv; pip unpacks next to it, as /tmp may be small
  mkdir -p .deps/tmp
  step "$1" "$2" env TMPDIR="$PWD/.deps/tmp" \
    "$venv/bin/python" -m pip install --no-user --no-compile --progress-bar off --constraint "$constraints" "${@:3}"
  rm -rf .deps/tmp
}

install_torch() {
  if find_torch >/dev/null; then
    echo "  libtorch: $(find_torch)"
    return
  fi
  local free
  free=$(df --output=avail -BG . | tail -n 1 | tr -dc 0-9)
  ((free >= 10)) || give_up "$PWD has $free GB of disk free; libtorch with its CUDA libraries and the build want 10.
Make room and call again."
  make_venv
  pip_install torch "Installing libtorch, 5 GB with its CUDA libraries" "$torch"
}

# A compiler of the CUDA major version that libtorch was built for, which the names of its libraries show.
install_cuda_compiler() {
  local torch_folder major nvcc
  torch_folder=$(find_torch)
  major=$(grep -aom 1 'libcudart\.so\.[0-9]*' "$torch_folder/../../../lib/libc10_cuda.so" | sed -n '1s/.*\.//p') || true
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc "$venv"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    if [[ -x $nvcc ]] && "$nvcc" --version | grep -q "release $major\."; then
      echo "  CUDA compiler: $nvcc"
      install_nvml_header "$(dirname "$(realpath "$nvcc")")/.."
      return
    fi
  done
  [[ $major == 13 ]] || give_up "The libtorch in $torch_folder was built for CUDA ${major:-(none)}, and no toolkit of that version is here.
Install one, or unset Torch_DIR and CMAKE_PREFIX_PATH and call again for a libtorch of CUDA 13 with its compiler."
  make_venv
  local toolkit parts=$toolkit_parts options=()
  if [[ $torch_folder != "$venv"/* ]]; then # then the libraries that are installed with torch are needed here too
    parts+=,cublas,cufft,curand,cusolver,cusparse,nvrtc,nvjitlink
    options=(--ignore-installed)
  fi
  pip_install cuda "Installing the CUDA compiler" "${options[@]}" "cuda-toolkit[$parts]==$toolkit_version"
  toolkit=$(echo "$venv"/lib/python3*/site-packages/nvidia/cu13)
  complete_toolkit "$toolkit"
  echo "  CUDA compiler: $toolkit/bin/nvcc"
}

# The library itself comes with the driver, and is not needed to build.
find_header() { # what it is, files: whether one of them stands; says which
  local what=$1 header
  for header in "${@:2}"; do
    if [[ -e $header ]]; then
      echo "  $what: $(realpath "$header")"
      return
    fi
  done
  return 1
}

install_nvml_header() { # toolkit
  find_header "NVML header" "$1"/include/nvml.h "$1"/targets/*/include/nvml.h /usr/include/nvml.h \
    "$venv"/lib/python3*/site-packages/nvidia/cu13/include/nvml.h && return
  make_venv
  pip_install nvml "Installing the header of NVIDIA's management library" "$nvml_header"
}

install_cudnn_frontend() {
  find_header "cuDNN's frontend" "$(find_torch)"/../../../../include/cudnn_frontend.h \
    "$venv"/lib/python3*/site-packages/include/cudnn_frontend.h /usr/include/cudnn_frontend.h && return
  make_venv
  pip_install cudnn-frontend "Installing the headers of cuDNN's frontend" --no-deps "$cudnn_frontend"
}

install_cutlass() {
  find_header "CUTLASS" "$(find_torch)"/../../../../cutlass_library/source/include/cutlass/cutlass.h \
    "$venv"/lib/python3*/site-packages/cutlass_library/source/include/cutlass/cutlass.h && return
  make_venv
  pip_install cutlass "Installing the headers of CUTLASS" --no-deps "$cutlass"
}

complete_toolkit() { # folder: compilers and linkers expect a lib64, and libraries without a version in their names
  local library
  ln -sfn lib "$1/lib64"
  for library in "$1"/lib/lib*.so.*; do
    [[ -e ${library%%.so.*}.so ]] || ln -s "$(basename "$library")" "${library%%.so.*}.so"
  done
}

install_test_packages() {
  make_venv
  if "$venv/bin/python" -c 'import importlib.metadata as m, sys
for package in sys.argv[1:]:
    name, version = package.split("==")
    assert m.version(name) == version' "${test_packages[@]}" 2>/dev/null; then
    echo "  Python packages of the tests: ${test_packages[*]}"
  else
    pip_install test-packages "Installing ${test_packages[*]} for the tests" "${test_packages[@]}"
  fi
}

if [[ -n $list ]]; then
  echo "System packages: ${system_packages[*]}"
  echo "Python packages: $torch cuda-toolkit[$toolkit_parts]==$toolkit_version $nvml_header $cudnn_frontend $cutlass${with_tests:+ ${test_packages[*]}}"
  exit
fi
echo "Setting up"
[[ -z $bring_system_packages ]] || install_system_packages
install_torch
install_cuda_compiler
install_cudnn_frontend
install_cutlass
[[ -z $with_tests ]] || install_test_packages
