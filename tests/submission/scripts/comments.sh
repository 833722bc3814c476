#!/bin/bash
##SBATCH --nodes=9
# SBATCH --nodes=8
#SBATCH --nodes=2 # --nodes=7
 #SBATCH --nodes=6

#SBATCH -t 10#20
echo
