#pragma once

/// The one header that a program includes to use adtrain; docs/embedding.md begins with an example.
/// Everything else is internal and may change.
#include "adtrain/batch_size.h"
#include "adtrain/checkpoint.h"
#include "adtrain/communicator.h"
#include "adtrain/data_parallel.h"
#include "adtrain/environment.h"
#include "adtrain/error.h"
#include "adtrain/histories.h"
#include "adtrain/launch.h"
#include "adtrain/network.h"
#include "adtrain/optimizer.h"
#include "adtrain/plugin.h"
#include "adtrain/stop.h"
#include "adtrain/version.h"
