# Everything the project stands on, found once; the table that closes the configure step says what was found where.

set(ADTRAIN_DEPS ${PROJECT_SOURCE_DIR}/.deps)  # where launch/setup.sh puts what the system does not have
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)    # for the project that adds this tree, which links what adtrain links
set(CMAKE_MESSAGE_LOG_LEVEL NOTICE)            # the table says it shorter; --log-level=STATUS shows the whole search
set(dependency_table "" CACHE INTERNAL "")

function(found name version where)
  set(dependency_table "${dependency_table}${name}|${version}|${where};" CACHE INTERNAL "")
endfunction()

function(version_in_macros header prefix out)  # from `#define PREFIX_MAJOR 2` and its like
  file(STRINGS ${header} numbers REGEX "define ${prefix}(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]+" "" numbers "${numbers}")
  string(REPLACE ";" "." numbers "${numbers}")
  set(${out} ${numbers} PARENT_SCOPE)
endfunction()

function(print_dependencies)
  set(CMAKE_MESSAGE_LOG_LEVEL STATUS)
  message(STATUS "")
  message(STATUS "adtrain ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, stands on")
  foreach(row IN LISTS dependency_table)
    if(row MATCHES "(.*)\\|(.*)\\|(.*)")
      string(SUBSTRING "${CMAKE_MATCH_1}              " 0 14 name)
      string(SUBSTRING "${CMAKE_MATCH_2}          " 0 10 version)
      message(STATUS "  ${name} ${version} ${CMAKE_MATCH_3}")
    endif()
  endforeach()
  message(STATUS "")
endfunction()

# Headers alone make a library: by its CMake package, else by a header, as Python's registry and hand-made prefixes have it.
function(find_headers name package target header)
  find_package(${package} QUIET)
  if(${package}_FOUND)
    found("${name}" "${${package}_VERSION}" "${${package}_DIR}")
    return()
  endif()
  find_path(${package}_INCLUDE_DIR ${header} REQUIRED)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE ${${package}_INCLUDE_DIR})
  found("${name}" "-" "${${package}_INCLUDE_DIR}")
endfunction()

found("compiler" "${CMAKE_CXX_COMPILER_VERSION}" "${CMAKE_CXX_COMPILER}")

# --- libtorch: as given, else the active Python's CUDA build (2.11 or newer), else the one from launch/setup.sh ------
if(NOT Torch_DIR)
  set(folders_of_pythons)
  foreach(python python3 ${ADTRAIN_DEPS}/venv/bin/python)
    execute_process(COMMAND ${python} ${PROJECT_SOURCE_DIR}/launch/find_torch.py
      OUTPUT_VARIABLE folder ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND folders_of_pythons ${folder})
  endforeach()
  find_path(Torch_DIR TorchConfig.cmake NO_DEFAULT_PATH PATH_SUFFIXES Torch share/cmake/Torch
    HINTS ENV Torch_DIR ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH ${folders_of_pythons})
  if(NOT Torch_DIR)
    message(FATAL_ERROR "No CUDA build of libtorch 2.11 or newer: neither Torch_DIR or CMAKE_PREFIX_PATH, nor the active "
                        "python3, nor ${ADTRAIN_DEPS}/venv has one. Run `bash launch/setup.sh`, which installs it there.")
  endif()
endif()
get_filename_component(torch_root ${Torch_DIR}/../../.. ABSOLUTE)

# --- the CUDA compiler: as given, an installed toolkit's, else the one that launch/setup.sh put beside libtorch ------
# A wheel names its CUDA version nowhere but in what its library asks the loader for.
file(GLOB torch_cuda_library ${torch_root}/lib/libc10_cuda.so)
if(NOT torch_cuda_library)
  message(FATAL_ERROR "${torch_root} is a libtorch without CUDA; expected a CUDA build, which also runs without a GPU. "
                      "Leave Torch_DIR and CMAKE_PREFIX_PATH unset and run `bash launch/setup.sh`.")
endif()
file(STRINGS ${torch_cuda_library} runtime REGEX "libcudart\\.so\\.[0-9]+" LIMIT_COUNT 1)
string(REGEX REPLACE ".*libcudart\\.so\\.([0-9]+).*" "\\1" torch_cuda_major "${runtime}")

function(is_for_this_torch verdict nvcc)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(NOT version MATCHES "release ${torch_cuda_major}\\.")
    set(${verdict} FALSE PARENT_SCOPE)
  endif()
endfunction()

file(GLOB registry_toolkit ${ADTRAIN_DEPS}/venv/lib/python3*/site-packages/nvidia/cu13)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(nvcc nvcc NO_CACHE PATHS /usr/local/cuda/bin ${registry_toolkit}/bin VALIDATOR is_for_this_torch)
  if(NOT nvcc)
    message(FATAL_ERROR "No nvcc of CUDA ${torch_cuda_major}, which ${torch_root} was built for. "
                        "Run `bash launch/setup.sh`, which installs one; it needs no GPU and no driver.")
  endif()
  set(CMAKE_CUDA_COMPILER ${nvcc})
endif()
set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 refuses C++20 for nvcc 13
set(CMAKE_CUDA_ARCHITECTURES OFF)  # until the compiler has said what it knows
enable_language(CUDA)
set(CMAKE_INCLUDE_SYSTEM_FLAG_CUDA "-isystem ")  # with CMake's "-isystem=" ccache finds nothing of another folder's build
found("CUDA" "${CMAKE_CUDA_COMPILER_VERSION}" "${CMAKE_CUDA_COMPILER}")

# libtorch looks for a toolkit, for architectures and for a GPU of its own accord, warns about what it does not find
# and sets nvcc flags for everyone. It is shown the compiler's toolkit, and the flags stay ours.
set(CUDAToolkit_ROOT ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT})
set(CUDA_TOOLKIT_ROOT_DIR ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT})

set(TORCH_CUDA_ARCH_LIST 9.0)
set(cuda_flags "${CMAKE_CUDA_FLAGS}")
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
find_package(Torch REQUIRED)
set(CMAKE_MESSAGE_LOG_LEVEL NOTICE)
set(CMAKE_CUDA_FLAGS "${cuda_flags}")
found("libtorch" "${Torch_VERSION}" "${torch_root}")
# The wheel names folders of MKL on the machine that built it; none of them is here.
if(TARGET caffe2::mkl)
  set_property(TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES)
endif()

execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
set(architectures 80 90 100)
foreach(architecture IN LISTS architectures)
  if(NOT known MATCHES "compute_${architecture}\n")
    list(REMOVE_ITEM architectures ${architecture})
  endif()
endforeach()
set(ADTRAIN_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "GPU architectures to compile kernels for: 80;90 or 8.0;9.0")
string(REPLACE "." "" CMAKE_CUDA_ARCHITECTURES "${ADTRAIN_CUDA_ARCHITECTURES}")

# Whether the program that is linked loads the libraries of GPUs itself: src/GpuLibraries.cmake
set(gpu_libraries_later "$<BOOL:$<TARGET_PROPERTY:ADTRAIN_LOADS_GPU_LIBRARIES>>")

# --- NCCL: the one that torch itself loads ----------------------------------------------------------------------------
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${torch_root}/../nvidia/nccl/include REQUIRED)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${torch_root}/../nvidia/nccl/lib REQUIRED)
version_in_macros(${NCCL_INCLUDE_DIR}/nccl.h "NCCL_" nccl_version)
found("NCCL" "${nccl_version}" "${NCCL_LIBRARY}")
add_library(adtrain_nccl INTERFACE)
target_include_directories(adtrain_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
target_link_libraries(adtrain_nccl INTERFACE $<$<NOT:${gpu_libraries_later}>:${NCCL_LIBRARY}>)

# --- cuDNN: the one that torch itself loads; its frontend is headers, which launch/setup.sh installs ----------------------
file(GLOB cudnn_folders ${torch_root}/../nvidia/cudnn)
file(GLOB frontend_folders ${torch_root}/../include ${ADTRAIN_DEPS}/venv/lib/python3*/site-packages/include)
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${cudnn_folders}/include REQUIRED)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${cudnn_folders}/lib REQUIRED)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${frontend_folders})
if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
  message(FATAL_ERROR "No cudnn_frontend.h: the headers of cuDNN's frontend. "
                      "Run `bash launch/setup.sh`, which installs them; they need no GPU and no driver.")
endif()
version_in_macros(${CUDNN_INCLUDE_DIR}/cudnn_version.h "CUDNN_" cudnn_version)
found("cuDNN" "${cudnn_version}" "${CUDNN_LIBRARY}")
add_library(adtrain_cudnn INTERFACE)
target_include_directories(adtrain_cudnn SYSTEM INTERFACE ${CUDNN_INCLUDE_DIR} ${CUDNN_FRONTEND_INCLUDE_DIR})
target_link_libraries(adtrain_cudnn INTERFACE $<$<NOT:${gpu_libraries_later}>:${CUDNN_LIBRARY}> CUDA::nvrtc)  # the frontend calls NVRTC

# --- CUTLASS: headers, which launch/setup.sh installs -------------------------------------------------------------------
file(GLOB cutlass_folders ${torch_root}/../cutlass_library/source ${ADTRAIN_DEPS}/venv/lib/python3*/site-packages/cutlass_library/source)
find_path(CUTLASS_INCLUDE_DIR cutlass/epilogue/fusion/operations.hpp HINTS ${cutlass_folders} PATH_SUFFIXES include)
find_path(CUTLASS_UTIL_INCLUDE_DIR cutlass/util/packed_stride.hpp HINTS ${cutlass_folders} PATH_SUFFIXES tools/util/include)
if(NOT CUTLASS_INCLUDE_DIR OR NOT CUTLASS_UTIL_INCLUDE_DIR)
  message(FATAL_ERROR "No cutlass/epilogue/fusion/operations.hpp and cutlass/util/packed_stride.hpp: the headers of CUTLASS 4. "
                      "Run `bash launch/setup.sh`, which installs them, or name their folders by "
                      "-DCUTLASS_INCLUDE_DIR=… and -DCUTLASS_UTIL_INCLUDE_DIR=….")
endif()
version_in_macros(${CUTLASS_INCLUDE_DIR}/cutlass/version.h "CUTLASS_" cutlass_version)
found("CUTLASS" "${cutlass_version}" "${CUTLASS_INCLUDE_DIR}")
add_library(adtrain_cutlass INTERFACE)
target_include_directories(adtrain_cutlass SYSTEM INTERFACE ${CUTLASS_INCLUDE_DIR} ${CUTLASS_UTIL_INCLUDE_DIR})

add_library(adtrain_cublaslt INTERFACE)
target_link_libraries(adtrain_cublaslt INTERFACE $<$<NOT:${gpu_libraries_later}>:CUDA::cublasLt>)

# --- NVML: its header alone; the library comes with the driver and is opened at run time ---------------------------------
find_path(NVML_INCLUDE_DIR nvml.h HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${registry_toolkit}/include)
if(NOT NVML_INCLUDE_DIR)
  message(FATAL_ERROR "No nvml.h: this toolkit of CUDA lacks the header of NVIDIA's management library. "
                      "Run `bash launch/setup.sh`, which installs it; it needs no GPU and no driver.")
endif()
file(STRINGS ${NVML_INCLUDE_DIR}/nvml.h nvml_version REGEX "define NVML_API_VERSION +[0-9]+")
string(REGEX REPLACE "[^0-9]" "" nvml_version "${nvml_version}")
found("NVML header" "${nvml_version}" "${NVML_INCLUDE_DIR}")

# --- Open MPI (C bindings only: the retired C++ ones break the link) --------------------------------------------------
set(MPI_CXX_SKIP_MPICXX ON)
set(MPI_DETERMINE_LIBRARY_VERSION ON)
find_package(MPI REQUIRED COMPONENTS C)
string(REGEX REPLACE "^Open MPI v([0-9.]+).*" "\\1" mpi_version "${MPI_C_LIBRARY_VERSION_STRING}")
string(REPLACE ";" " " mpi_libraries "${MPI_C_LIBRARIES}")
found("Open MPI" "${mpi_version}" "${mpi_libraries}")
add_library(adtrain_mpi INTERFACE)
target_link_libraries(adtrain_mpi INTERFACE MPI::MPI_C)
target_compile_definitions(adtrain_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

# --- gloo: headers only, never its library; libtorch_cpu holds the code -----------------------------------------------
find_path(GLOO_INCLUDE_DIR gloo/algorithm.h REQUIRED)
version_in_macros(${GLOO_INCLUDE_DIR}/gloo/config.h "GLOO_VERSION_" gloo_version)
found("gloo headers" "${gloo_version}" "${GLOO_INCLUDE_DIR}")

# --- where programs look for all of these -----------------------------------------------------------------------------
# CUDA's libraries come from beside libtorch: a toolkit of another minor version would mix two sets in one process. The
# compiler's toolkit is asked for what is not there.
file(GLOB torch_cuda_runtime ${torch_root}/lib/libcudart*.so.${torch_cuda_major}
  ${torch_root}/../nvidia/*/lib/libcudart.so.${torch_cuda_major})
set(library_folders)
foreach(library IN ITEMS ${torch_root}/lib/libtorch.so ${torch_cuda_runtime} ${NCCL_LIBRARY} ${CUDNN_LIBRARY} ${MPI_mpi_LIBRARY}
    ${CUDA_cublasLt_LIBRARY})
  get_filename_component(folder ${library} DIRECTORY)
  get_filename_component(folder ${folder} ABSOLUTE)
  list(APPEND library_folders ${folder})
endforeach()
list(REMOVE_DUPLICATES library_folders)
set(CMAKE_BUILD_RPATH ${library_folders})

# --- the well-kept libraries --------------------------------------------------------------------------------------------
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(yaml-cpp REQUIRED)
# Its soname differs between distributions, and static binaries travel: the archive, where that package has one.
find_library(YAML_CPP_STATIC libyaml-cpp.a HINTS ${yaml-cpp_DIR}/../.. ${yaml-cpp_DIR}/../../../lib NO_DEFAULT_PATH)
set(yaml_target yaml-cpp::yaml-cpp)  # its name from 0.8 on
if(NOT TARGET ${yaml_target})
  set(yaml_target yaml-cpp)
endif()
set(yaml_library ${yaml_target})
if(YAML_CPP_STATIC)
  set(yaml_library ${YAML_CPP_STATIC})
endif()
add_library(adtrain_yaml INTERFACE)
target_include_directories(adtrain_yaml SYSTEM INTERFACE $<TARGET_PROPERTY:${yaml_target},INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(adtrain_yaml INTERFACE ${yaml_library})
found("yaml-cpp" "${yaml-cpp_VERSION}" "${yaml_library}")
find_headers("cxxopts" cxxopts cxxopts::cxxopts cxxopts.hpp)
find_headers("nlohmann-json" nlohmann_json nlohmann_json::nlohmann_json nlohmann/json.hpp)
# fmt: the headers that libtorch brings along; src/base/Format.cpp compiles them once.
file(STRINGS ${torch_root}/include/fmt/base.h fmt_version REGEX "define FMT_VERSION ")
string(REGEX REPLACE ".* ([0-9]+)0([0-9])0([0-9]).*" "\\1.\\2.\\3" fmt_version "${fmt_version}")
found("fmt" "${fmt_version}" "${torch_root}/include/fmt")
set(HDF5_USE_STATIC_LIBRARIES ON)  # a static one travels; not every distribution has it
find_package(HDF5 QUIET COMPONENTS C)
if(NOT HDF5_FOUND)
  set(HDF5_USE_STATIC_LIBRARIES OFF)
  find_package(HDF5 REQUIRED COMPONENTS C)
endif()
found("HDF5" "${HDF5_VERSION}" "${HDF5_C_INCLUDE_DIRS}")
add_library(adtrain_hdf5 INTERFACE)
target_include_directories(adtrain_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(adtrain_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
find_package(ZLIB REQUIRED)  # crc32; the HDF5 packages bring it along
found("zlib" "${ZLIB_VERSION_STRING}" "${ZLIB_LIBRARIES}")
pkg_check_modules(CAIRO REQUIRED IMPORTED_TARGET cairo cairo-svg cairo-png)
found("cairo" "${CAIRO_cairo_VERSION}" "${CAIRO_cairo_LIBDIR}")
find_program(CCACHE ccache)
if(CCACHE)
  # Precompiled headers and ccache agree only with these two allowances.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
  execute_process(COMMAND ${CCACHE} --version OUTPUT_VARIABLE ccache_version)
  string(REGEX MATCH "[0-9]+\\.[0-9.]+" ccache_version "${ccache_version}")
  found("ccache" "${ccache_version}" "${CCACHE}")
endif()

# --- for the tests: GoogleTest, and a Python that compares with numpy, h5py, safetensors, tensorboard -------------------
set(tests_by_default OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(tests_by_default AUTO)
endif()
set(ADTRAIN_BUILD_TESTS ${tests_by_default} CACHE STRING
  "Tests and benchmarks: ON, OFF, or AUTO, which is ON where GoogleTest is found; OFF by default in a project that adds this tree")
set_property(CACHE ADTRAIN_BUILD_TESTS PROPERTY STRINGS AUTO ON OFF)
set(build_tests OFF)
if(ADTRAIN_BUILD_TESTS)
  find_package(GTest QUIET)
  set(build_tests ${GTest_FOUND})
  if(NOT GTest_FOUND AND NOT ADTRAIN_BUILD_TESTS STREQUAL "AUTO")
    message(FATAL_ERROR "ADTRAIN_BUILD_TESTS is ${ADTRAIN_BUILD_TESTS} and there is no GoogleTest. Run "
                        "`bash launch/setup.sh --with-tests`, which brings what the tests need, "
                        "or configure with -DADTRAIN_BUILD_TESTS=OFF.")
  endif()
endif()
if(build_tests)
  found("GoogleTest" "${GTest_VERSION}" "${GTest_DIR}")
  find_program(ADTRAIN_PYTHON python3 NO_CACHE HINTS ${ADTRAIN_DEPS}/venv/bin REQUIRED)
  execute_process(COMMAND ${ADTRAIN_PYTHON} --version OUTPUT_VARIABLE python_version)
  string(REGEX MATCH "[0-9]+\\.[0-9.]+" python_version "${python_version}")
  found("Python (tests)" "${python_version}" "${ADTRAIN_PYTHON}")
else()
  found("GoogleTest" "-" "tests are not built: ADTRAIN_BUILD_TESTS is ${ADTRAIN_BUILD_TESTS}")
endif()
