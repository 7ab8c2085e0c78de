# libtorch_cuda, cuBLASLt, cuDNN and NCCL, which take a good tenth of a second to load. Programs of ours load them themselves where there
# is a driver for GPUs (base/GpuLibraries.h), and are linked with a stand-in: it has the same functions, and calls itself by the name of
# a library that every program has loaded anyway. The loader looks for a function in all loaded libraries when it is called first. What is
# no function is not in the stand-in, and a program that uses it does not link.
#   adtrain_loads_gpu_libraries(PROGRAM)     PROGRAM calls load_gpu_libraries() at the beginning of main
set(gpu_libraries_stand_in ${CMAKE_BINARY_DIR}/libgpu_stand_in.so)
set(gpu_libraries ${torch_root}/lib/libtorch_cuda.so ${NCCL_LIBRARY} ${CUDNN_LIBRARY} ${CUDA_cublasLt_LIBRARY})

add_custom_command(OUTPUT ${gpu_libraries_stand_in}
  COMMAND bash ${PROJECT_SOURCE_DIR}/src/gpu_stand_in.sh ${CMAKE_C_COMPILER} ${CMAKE_NM} ${gpu_libraries_stand_in} ${gpu_libraries}
  DEPENDS ${gpu_libraries} ${PROJECT_SOURCE_DIR}/src/gpu_stand_in.sh
  COMMENT "Making the stand-in for the libraries of GPUs")
add_custom_target(adtrain_gpu_stand_in DEPENDS ${gpu_libraries_stand_in})

function(adtrain_loads_gpu_libraries program)
  set_target_properties(${program} PROPERTIES ADTRAIN_LOADS_GPU_LIBRARIES ON LINK_DEPENDS ${gpu_libraries_stand_in})
  add_dependencies(${program} adtrain_gpu_stand_in)
  target_link_options(${program} PRIVATE LINKER:-z,lazy)
endfunction()
