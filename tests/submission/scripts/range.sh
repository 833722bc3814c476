#!/bin/bash
#SBATCH --nodes 2-6
#SBATCH --ntasks-per-node 4
