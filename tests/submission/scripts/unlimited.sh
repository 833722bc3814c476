#!/bin/bash
#SBATCH --time=UNLIMITED
#SBATCH --qos=high
#SBATCH -H
