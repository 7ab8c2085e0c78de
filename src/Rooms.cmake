# A room is a folder of src/: one static library, the target adtrain_NAME, that may stand only on the rooms and packages it names.
#   adtrain_room(NAME [TORCH] SOURCES a.cpp ... ROOMS below ... PACKAGES target ...)
#   adtrain_tests(NAME [TORCH] [ON_CPU] SOURCES Foo_test.cpp ... ROOMS room ...)
# TORCH adds libtorch and shares one precompiled <ATen/ATen.h>. ON_CPU: the tests run on the CPU, whatever they do elsewhere.

set(ADTRAIN_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")
option(ADTRAIN_PCH "Share one precompiled header (clang-tidy cannot read GCC's)" ON)
set(ADTRAIN_CPU "x86-64-v3" CACHE STRING "-march for x86-64 hosts (AVX2); empty for the compiler's default")

add_library(adtrain_flags INTERFACE)
target_compile_options(adtrain_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror>
  # Here GCC 12 and 13 warn about their own std::string and std::vector.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)
# Kernels share constexpr arithmetic (sample order, random numbers) with the CPU.
target_compile_options(adtrain_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
target_include_directories(adtrain_flags SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})  # for fmt, in every room
target_include_directories(adtrain_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
if(ADTRAIN_CPU AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_compile_options(adtrain_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${ADTRAIN_CPU}>)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(adtrain_flags INTERFACE _GLIBCXX_ASSERTIONS)
endif()
# Without it NVRTC's dependency on the driver counts, which machines without a GPU lack. Compilers of distributions pass it
# themselves, but not with sanitizers.
add_link_options(LINKER:--as-needed)
if(ADTRAIN_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ADTRAIN_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  # GCC's analysis of what the sanitizers insert sees uninitialised values in its own std::function.
  target_compile_options(adtrain_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${ADTRAIN_SANITIZE})
  # The sanitizers call dlopen for the program, and from their library the loader follows an RPATH of the program, no RUNPATH.
  add_link_options(LINKER:--disable-new-dtags)
endif()

# libtorch's headers are not ours: they count as system headers, so their warnings stay out of our -Werror.
add_library(adtrain_torch INTERFACE)
target_include_directories(adtrain_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
# Compiled alike, however they are linked: all share the precompiled header.
target_compile_definitions(adtrain_torch INTERFACE $<TARGET_PROPERTY:torch_cuda,INTERFACE_COMPILE_DEFINITIONS>)
target_link_libraries(adtrain_torch INTERFACE
  "$<${gpu_libraries_later}:${gpu_libraries_stand_in};torch_cpu_library;c10_cuda;c10>" "$<$<NOT:${gpu_libraries_later}>:${TORCH_LIBRARIES}>")
# The wheel's libtorch.so exports an std::filesystem of its own, whose remove_all crashes. Whoever comes first in the list
# of libraries wins, so the real libstdc++ goes before it.
target_link_options(adtrain_torch INTERFACE LINKER:--push-state,--no-as-needed,-lstdc++,--pop-state)

if(ADTRAIN_PCH)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/adtrain_pch.cpp CONTENT "")  # unlike WRITE, untouched when it is there
  add_library(adtrain_pch STATIC ${CMAKE_BINARY_DIR}/adtrain_pch.cpp)
  target_link_libraries(adtrain_pch PRIVATE adtrain_flags adtrain_torch)
  target_precompile_headers(adtrain_pch PRIVATE <ATen/ATen.h> <fmt/format.h> <string> <vector> <memory> <map> <functional>
    <optional> <span> <filesystem>)
  target_compile_options(adtrain_pch PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # ccache asks for it
endif()

function(adtrain_share_pch target)
  target_link_libraries(${target} PRIVATE adtrain_torch)
  if(ADTRAIN_PCH)
    target_precompile_headers(${target} REUSE_FROM adtrain_pch)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  endif()
endfunction()

# For code that runs once: optimizing it would take longer than running it.
function(adtrain_build_quickly target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

function(adtrain_room name)
  cmake_parse_arguments(ROOM "TORCH" "" "SOURCES;ROOMS;PACKAGES" ${ARGN})
  set(target adtrain_${name})
  list(TRANSFORM ROOM_ROOMS PREPEND adtrain_)
  add_library(${target} STATIC ${ROOM_SOURCES})
  target_link_libraries(${target} PUBLIC adtrain_flags ${ROOM_ROOMS} ${ROOM_PACKAGES})
  if(ROOM_TORCH)
    target_link_libraries(${target} PUBLIC adtrain_torch)
    adtrain_share_pch(${target})
  endif()
endfunction()

set(test_timeout 600)  # seconds; the longest take 160 on two cores that other tests share
set(test_patience 1)  # so many times as long as in the release build may the launchers' runs take
if(ADTRAIN_SANITIZE)
  set(test_timeout 3000)
  set(test_patience 4)
endif()
# What makes processes of tests start sooner. Python's packages are installed uncompiled: to compile torch anew at each start
# takes longer than most tests, and the sources' folders stay as they are. adtrain without the last variable executes itself
# once more to set it (src/cli/BriefWaiting.cpp), for 0.2 s of the loader's time.
set(quick_starts PYTHONPYCACHEPREFIX=${CMAKE_BINARY_DIR}/pycache PYTHONDONTWRITEBYTECODE= GOMP_SPINCOUNT=700)
# A test is one thread of CTest's -j, and Open MPI wants to be told twice that root may start ranks.
set(test_environment OMP_NUM_THREADS=1 ${quick_starts})
execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
if(user EQUAL 0)
  list(APPEND test_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
endif()

# A CTest test whose command starts ranks of a program.
function(adtrain_ranks_test name)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${test_timeout} PROCESSORS 2 SKIP_REGULAR_EXPRESSION "skipped: " ENVIRONMENT
    "OMPI_MCA_rmaps_base_oversubscribe=1;${test_environment}")
endfunction()

# The --gtest_filter of all suites that a file names, those with parameters too; read anew when the file changes.
function(adtrain_suites_filter filter file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} tests REGEX "^TEST(_F|_P)?\\(")
  list(TRANSFORM tests REPLACE "^[A-Z_]+\\(([A-Za-z0-9_]+).*" "\\1")
  list(REMOVE_DUPLICATES tests)
  list(TRANSFORM tests REPLACE "(.+)" "\\1.*:*/\\1.*")
  list(JOIN tests ":" patterns)
  set(${filter} "${patterns}" PARENT_SCOPE)
endfunction()

# Whether a file has tests that say "no GPU" where there is none.
function(adtrain_needs_gpu answer file)
  file(STRINGS ${file} skips REGEX "GTEST_SKIP\\(\\) << \"no GPU")
  list(LENGTH skips count)
  set(${answer} ${count} PARENT_SCOPE)
endfunction()

# One CTest test for each Foo_test.cpp: it runs all suites of the file, so that libtorch is loaded once a file and a failure
# names the file. A suite that matches nothing fails; a file of which no test can run here is skipped. All that runs
# on a GPU has the label gpu.
function(adtrain_tests room)
  cmake_parse_arguments(TESTS "TORCH;ON_CPU" "" "SOURCES;ROOMS" ${ARGN})
  set(target test_${room})
  list(TRANSFORM TESTS_ROOMS PREPEND adtrain_)
  add_executable(${target} ${TESTS_SOURCES})
  target_link_libraries(${target} PRIVATE ${TESTS_ROOMS} test_main GTest::gmock)
  adtrain_build_quickly(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE
    ADTRAIN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ADTRAIN_BINARY_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    ADTRAIN_PYTHON="${ADTRAIN_PYTHON}")
  if(TESTS_TORCH)
    adtrain_share_pch(${target})
    adtrain_loads_gpu_libraries(${target})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:test_seed_of_torch>)
  endif()
  foreach(source IN LISTS TESTS_SOURCES)
    if(source MATCHES "([A-Za-z0-9]+)_test\\.cpp$")
      set(name ${CMAKE_MATCH_1})
      get_filename_component(file ${source} ABSOLUTE)
      adtrain_suites_filter(filter ${file})
      add_test(NAME ${room}.${name} COMMAND ${target} --gtest_filter=${filter} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(${room}.${name} PROPERTIES
        FAIL_REGULAR_EXPRESSION "Running 0 tests" SKIP_RETURN_CODE 77 TIMEOUT ${test_timeout}
        ENVIRONMENT "${test_environment}")
      adtrain_needs_gpu(needs_gpu ${file})
      if(needs_gpu AND NOT TESTS_ON_CPU)
        set_tests_properties(${room}.${name} PROPERTIES LABELS gpu)
      endif()
    endif()
  endforeach()
endfunction()
