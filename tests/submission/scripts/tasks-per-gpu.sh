#!/bin/bash
#SBATCH --gpus-per-node=4 --nodes=2 --ntasks-per-gpu=2
