#!/bin/bash
#SBATCH --ntasks=10
#SBATCH --ntasks-per-node=4
