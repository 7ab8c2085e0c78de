# Everything the project stands on, found once. Each find_dependency() row ends up in the table that closes the configure step.

set(ADTRAIN_DEPS ${PROJECT_SOURCE_DIR}/.deps)  # where launch/setup.sh puts what the system does not have
set(dependency_table "" CACHE INTERNAL "")

function(found name version where)
  set(dependency_table "${dependency_table}${name}|${version}|${where};" CACHE INTERNAL "")
endfunction()

function(print_dependencies)
  message(STATUS "")
  message(STATUS "adtrain ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, stands on")
  foreach(row IN LISTS dependency_table)
    if(row)
      string(REPLACE "|" ";" cells "${row}")
      list(GET cells 0 name)
      list(GET cells 1 version)
      list(GET cells 2 where)
      string(SUBSTRING "${name}              " 0 14 name)
      string(SUBSTRING "${version}              " 0 14 version)
      message(STATUS "  ${name} ${version} ${where}")
    endif()
  endforeach()
  message(STATUS "")
endfunction()

found("compiler" "${CMAKE_CXX_COMPILER_VERSION}" "${CMAKE_CXX_COMPILER}")

# --- libtorch: as given, else the active Python's CUDA build (2.11 or newer), else the one from launch/setup.sh ------
function(torch_of python out)
  execute_process(
    COMMAND ${python} -c "import torch; v = torch.__version__.split('+')[0].split('.'); \
assert torch.version.cuda and (int(v[0]), int(v[1])) >= (2, 11); print(torch.utils.cmake_prefix_path, torch.version.cuda)"
    OUTPUT_VARIABLE answer RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    set(${out} "" PARENT_SCOPE)
  else()
    string(REPLACE " " ";" answer "${answer}")
    set(${out} "${answer}" PARENT_SCOPE)
  endif()
endfunction()

if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH AND NOT DEFINED ENV{Torch_DIR} AND NOT DEFINED ENV{CMAKE_PREFIX_PATH})
  foreach(python python3 ${ADTRAIN_DEPS}/venv/bin/python)
    torch_of(${python} answer)
    if(answer)
      list(GET answer 0 torch_prefix)
      set(Torch_DIR ${torch_prefix}/Torch CACHE PATH "libtorch's CMake package")
      break()
    endif()
  endforeach()
  if(NOT Torch_DIR)
    message(FATAL_ERROR "No CUDA build of libtorch 2.11 or newer: neither Torch_DIR, nor the active python3's torch, "
                        "nor ${ADTRAIN_DEPS}/venv. Run `bash launch/setup.sh`, which installs one there.")
  endif()
endif()

# --- the CUDA compiler: as given, an installed toolkit, else the one from the Python registry beside torch -----------
file(GLOB registry_toolkit ${ADTRAIN_DEPS}/venv/lib/python3*/site-packages/nvidia/cu13)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(nvcc nvcc HINTS /usr/local/cuda/bin ${registry_toolkit}/bin NO_CACHE)
  if(NOT nvcc)
    message(FATAL_ERROR "No CUDA compiler (nvcc). Run `bash launch/setup.sh`, which installs one without a driver.")
  endif()
  set(CMAKE_CUDA_COMPILER ${nvcc})
endif()
if(registry_toolkit AND CMAKE_CUDA_COMPILER MATCHES "^${registry_toolkit}/")
  set(CUDAToolkit_ROOT ${registry_toolkit})
  set(CUDA_TOOLKIT_ROOT_DIR ${registry_toolkit})
  set(ENV{CUDA_HOME} ${registry_toolkit})
  set(ENV{CUDA_PATH} ${registry_toolkit})
endif()
# CMake 3.25 knows no CUDA C++20 dialect for nvcc 13; device code is C++17.
set(CMAKE_CUDA_STANDARD 17)
set(ADTRAIN_CUDA_ARCHITECTURES "8.0;9.0;10.0" CACHE STRING "GPU architectures to compile kernels for")
set(TORCH_CUDA_ARCH_LIST ${ADTRAIN_CUDA_ARCHITECTURES})  # libtorch turns the list into nvcc's flags
set(CMAKE_CUDA_ARCHITECTURES OFF)                        # so CMake adds none of its own
enable_language(CUDA)
found("CUDA" "${CMAKE_CUDA_COMPILER_VERSION}" "${CMAKE_CUDA_COMPILER}")

find_package(Torch REQUIRED)
get_filename_component(torch_root ${Torch_DIR}/../../.. ABSOLUTE)
found("libtorch" "${Torch_VERSION}" "${torch_root}")

# --- NCCL: the one that torch itself loads ----------------------------------------------------------------------------
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${torch_root}/../nvidia/nccl/include REQUIRED)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${torch_root}/../nvidia/nccl/lib REQUIRED)
file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_version REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]+" "" nccl_version "${nccl_version}")
string(REPLACE ";" "." nccl_version "${nccl_version}")
found("NCCL" "${nccl_version}" "${NCCL_LIBRARY}")
add_library(adtrain_nccl INTERFACE)
target_include_directories(adtrain_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
target_link_libraries(adtrain_nccl INTERFACE ${NCCL_LIBRARY})

# --- Open MPI (C bindings only: the retired C++ ones break the link) --------------------------------------------------
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI REQUIRED COMPONENTS C)
found("MPI" "${MPI_C_VERSION}" "${MPI_C_LIBRARIES}")
add_library(adtrain_mpi INTERFACE)
target_link_libraries(adtrain_mpi INTERFACE MPI::MPI_C)
target_compile_definitions(adtrain_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

# --- gloo: headers only, never its library; libtorch_cpu holds the code -----------------------------------------------
find_path(GLOO_INCLUDE_DIR gloo/algorithm.h REQUIRED)
found("gloo headers" "" "${GLOO_INCLUDE_DIR}")

# --- the well-kept libraries --------------------------------------------------------------------------------------------
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(yaml-cpp REQUIRED)
find_library(YAML_CPP_STATIC libyaml-cpp.a)  # its soname differs between distributions; static binaries travel
set(yaml_library yaml-cpp)
if(YAML_CPP_STATIC)
  set(yaml_library ${YAML_CPP_STATIC})
endif()
add_library(adtrain_yaml INTERFACE)
target_link_libraries(adtrain_yaml INTERFACE ${yaml_library})
found("yaml-cpp" "${yaml-cpp_VERSION}" "${yaml_library}")
find_package(cxxopts REQUIRED)
found("cxxopts" "${cxxopts_VERSION}" "${cxxopts_DIR}")
find_package(nlohmann_json REQUIRED)
found("nlohmann-json" "${nlohmann_json_VERSION}" "${nlohmann_json_DIR}")
find_package(fmt REQUIRED)  # used header-only, for the same reason as yaml-cpp's archive
found("fmt" "${fmt_VERSION}" "${fmt_DIR}")
set(HDF5_USE_STATIC_LIBRARIES ON)
find_package(HDF5 REQUIRED COMPONENTS C)
found("HDF5" "${HDF5_VERSION}" "${HDF5_C_INCLUDE_DIRS}")
add_library(adtrain_hdf5 INTERFACE)
target_include_directories(adtrain_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(adtrain_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
pkg_check_modules(CAIRO REQUIRED IMPORTED_TARGET cairo cairo-svg cairo-png)
found("cairo" "${CAIRO_VERSION}" "${CAIRO_LIBDIR}")
find_package(GTest REQUIRED)
found("GoogleTest" "${GTest_VERSION}" "${GTest_DIR}")
find_program(CCACHE ccache)
if(CCACHE)
  # Precompiled headers and ccache agree only with these two allowances.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
  found("ccache" "" "${CCACHE}")
endif()
