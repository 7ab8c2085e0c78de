# The targets adtrain::adtrain and adtrain::plugin, for a project that adds this tree, and what
# `cmake --install build/release --prefix P` puts into P: programs, the library with its headers and CMake package,
# configurations, the Python package's sources and documents. P may be moved afterwards: what lies in it is found from where it lies.

# Folders in which installed programs look for what is not in P. An entry may begin with $ORIGIN, the program's folder.
set(ADTRAIN_RUNPATH "${library_folders}" CACHE STRING "Where installed programs look for libtorch, NCCL, CUDA and MPI")

# One archive of the rooms that include/adtrain/ stands on.
set(rooms_of_library optimizer optimizer_kernels framework checkpoint data parallel memory collectives watchdog launch config base)
list(TRANSFORM rooms_of_library REPLACE "(.+)" "$<TARGET_OBJECTS:adtrain_\\1>" OUTPUT_VARIABLE objects)
add_library(adtrain_library STATIC ${objects})
set_target_properties(adtrain_library PROPERTIES OUTPUT_NAME adtrain EXPORT_NAME adtrain LINKER_LANGUAGE CXX)
target_compile_features(adtrain_library INTERFACE cxx_std_20)
# In this tree, or in one that adds it, targets say what to link; what is installed finds it by adtrainConfig.cmake.
target_include_directories(adtrain_library INTERFACE
  $<INSTALL_INTERFACE:include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_link_libraries(adtrain_library INTERFACE $<INSTALL_INTERFACE:adtrain::dependencies>
  $<BUILD_INTERFACE:adtrain_torch;adtrain_nccl;adtrain_mpi;CUDA::cudart;ZLIB::ZLIB;Threads::Threads>)
list(JOIN library_folders ":" folders)
target_link_options(adtrain_library INTERFACE $<BUILD_INTERFACE:LINKER:-rpath,${folders}>)
add_library(adtrain::adtrain ALIAS adtrain_library)

# For plug-ins, which need the headers and libtorch alone.
add_library(adtrain_plugin INTERFACE)
target_compile_features(adtrain_plugin INTERFACE cxx_std_20)
target_include_directories(adtrain_plugin INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(adtrain_plugin INTERFACE adtrain_torch)
add_library(adtrain::plugin ALIAS adtrain_plugin)

if(NOT PROJECT_IS_TOP_LEVEL)
  return()  # the project that adds this tree installs what it wants
endif()

set_target_properties(adtrain adtrain_history_reader PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${ADTRAIN_RUNPATH}")
install(TARGETS adtrain adtrain_history_reader RUNTIME DESTINATION bin)
install(TARGETS adtrain_library EXPORT adtrain ARCHIVE DESTINATION lib)
install(DIRECTORY include/adtrain DESTINATION include FILES_MATCHING PATTERN "*.h")
install(DIRECTORY configs DESTINATION share/adtrain)
install(FILES src/environments/worker/environment_worker.py src/run/throughput/peer_scoring.py DESTINATION share/adtrain)
install(DIRECTORY src/python DESTINATION share/adtrain FILES_MATCHING PATTERN "*.py" PATTERN py.typed PATTERN pyproject.toml
  PATTERN __pycache__ EXCLUDE)
install(DIRECTORY docs DESTINATION share/doc/adtrain)
install(FILES README.md LICENSE DESTINATION share/doc/adtrain)

# The package finds libtorch and what belongs to it where they were found here, unless it is told otherwise.
get_filename_component(nccl_folder ${NCCL_LIBRARY} DIRECTORY)
get_filename_component(cudart_folder ${CUDA_cublasLt_LIBRARY} DIRECTORY)
get_filename_component(mpi_folder ${MPI_mpi_LIBRARY} DIRECTORY)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_release "${Torch_VERSION}")
include(CMakePackageConfigHelpers)
set(package ${CMAKE_BINARY_DIR}/package)
configure_package_config_file(src/adtrainConfig.cmake.in ${package}/adtrainConfig.cmake
  INSTALL_DESTINATION lib/cmake/adtrain NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${package}/adtrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${package}/adtrainConfig.cmake ${package}/adtrainConfigVersion.cmake DESTINATION lib/cmake/adtrain)
install(EXPORT adtrain NAMESPACE adtrain:: FILE adtrainTargets.cmake DESTINATION lib/cmake/adtrain)
